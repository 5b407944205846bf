// Reading of PNG through libpng: rows in order; interlaced pictures are decoded whole.
#include <png.h>

#include "io/buffered_input.h"
#include "io/c_trap.h"
#include "io/container.h"
#include "io/png.h"
#include "io/row_cursor.h"

namespace tilery {
namespace {

constexpr size_t kChunkLimit = size_t{256} << 20;  // of one ancillary chunk, as stored

struct Source {
  BufferedInput input;
  CTrap trap;
};

extern "C" {
static void PngReadHook(png_structp png, png_bytep out, size_t bytes) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  size_t got = 0;
  try {
    got = source->input.Read({reinterpret_cast<std::byte*>(out), bytes});
  } catch (...) {
    source->trap.pending = std::current_exception();
  }
  if (source->trap.pending) png_error(png, "read failed");
  if (got < bytes) png_error(png, "the file ends too early");
}
static void PngErrorHook(png_structp png, png_const_charp text) {
  static_cast<CTrap*>(png_get_error_ptr(png))->Leave(text);
}
static void PngWarningHook(png_structp, png_const_charp) {}
}

class PngReader final : public Reader {
 public:
  explicit PngReader(InputFile file) : file_(std::move(file)), source_{BufferedInput(file_), {}} {
    png_ =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_.trap, PngErrorHook, PngWarningHook);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    try {
      if (info_ == nullptr) throw Error(Fault::kTransient, "libpng has no memory");
      ReadHeader();
      metadata_ = ReadPngMetadata(file_);
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  ~PngReader() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }

  void Read(const Box& box, const View& out) override {
    const int64_t due = cursor_.next();
    const RowRange rows = cursor_.Advance(box);
    if (rows.begin == rows.end) return;
    Start();
    if (interlaced_) {
      const ConstView all = DenseView(static_cast<const std::byte*>(whole_.data()), header_.dtype,
                                      header_.channels, header_.shape, Layout::kInterleaved);
      CopyView(all.Crop(box), out);
      return;
    }
    for (int64_t y = due; y < rows.begin; ++y) ReadRow(row_.data(), y);
    const ConstView line =
        DenseView(static_cast<const std::byte*>(row_.data()), header_.dtype, header_.channels,
                  {1, 1, header_.shape[2]}, Layout::kInterleaved);
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      const Index at{0, y - rows.begin, 0};
      const View target = out.Crop({at, {1, at[1] + 1, header_.shape[2]}});
      if (IsDense(target, Layout::kInterleaved)) {
        ReadRow(target.data, y);
      } else {
        ReadRow(row_.data(), y);
        CopyView(line, target);
      }
    }
  }

  void CheckEnd() override {
    Start();
    if (!interlaced_) {
      for (int64_t y = cursor_.next(); y < header_.shape[1]; ++y) ReadRow(row_.data(), y);
    }
    Call("after the last row", [this] { png_read_end(png_, nullptr); });
  }

 private:
  template <typename F>
  void Call(const char* where, F&& call) {
    if (!Trapped(source_.trap, call)) Fail(where);
  }

  [[noreturn]] void Fail(const std::string& where) {
    if (source_.trap.pending) std::rethrow_exception(source_.trap.pending);
    ThrowInput(file_.path(), "damaged PNG, " + where + ": " + source_.trap.message + " (at byte " +
                                 std::to_string(source_.input.position()) + " of " +
                                 std::to_string(file_.size()) + ")");
  }

  int64_t RowBytes() const {
    return header_.shape[2] * header_.channels * static_cast<int64_t>(DTypeSize(header_.dtype));
  }

  void ReadHeader() {
    Call("in its header", [this] {
      // Metadata are read apart.
      static const png_byte kLeftOut[] = "iCCP\0gAMA\0cHRM\0sRGB\0eXIf\0tEXt\0zTXt\0iTXt";
      png_set_read_fn(png_, &source_, PngReadHook);
      png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);
      png_set_chunk_malloc_max(png_, kChunkLimit);
      png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kLeftOut, 8);
      png_read_info(png_, info_);
    });
    const int type = png_get_color_type(png_, info_);
    const bool transparent = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    const bool alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || transparent;
    header_.format = "png";
    header_.dtype = png_get_bit_depth(png_, info_) == 16 ? DType::kU16 : DType::kU8;
    header_.alpha = alpha ? AlphaKind::kStraight : AlphaKind::kNone;
    header_.access = Access::kRows;
    header_.channels = ((type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1) + (alpha ? 1 : 0);
    header_.shape = {1, png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
    cursor_ = RowCursor(header_.shape);
    interlaced_ = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    if (RowBytes() > kWholePictureLimit) {
      ThrowInput(file_.path(), "one row would take " + Bytes(RowBytes()) + ", the limit is " +
                                   Bytes(kWholePictureLimit));
    }
    if (interlaced_ && RowBytes() > kWholePictureLimit / header_.shape[1]) {
      ThrowInput(file_.path(), "an interlaced PNG is decoded whole and would take " +
                                   Bytes(RowBytes() * header_.shape[1]) + ", the limit is " +
                                   Bytes(kWholePictureLimit) + "; save it without interlacing");
    }
    const int64_t stored_row = static_cast<int64_t>(png_get_rowbytes(png_, info_));
    RequireRatio(file_.path(), file_.size(), stored_row * header_.shape[1]);
  }

  // Sets the decoder up, which headers alone do not need.
  void Start() {
    if (started_) return;
    Call("before its first row", [this] {
      png_set_expand(png_);
      png_set_swap(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    if (static_cast<int64_t>(png_get_rowbytes(png_, info_)) != RowBytes()) {
      throw Error(Fault::kInternal,
                  InFile(file_.path(), "libpng expands to other rows than planned"));
    }
    row_.resize(static_cast<size_t>(RowBytes()));
    started_ = true;
    if (!interlaced_) return;
    whole_.resize(static_cast<size_t>(RowBytes() * header_.shape[1]));
    std::vector<png_bytep> rows;
    for (int64_t y = 0; y < header_.shape[1]; ++y) {
      rows.push_back(reinterpret_cast<png_bytep>(whole_.data() + y * RowBytes()));
    }
    png_bytepp first = rows.data();
    Call("in an interlaced pass", [this, first] { png_read_image(png_, first); });
  }

  void ReadRow(std::byte* into, int64_t y) {
    const bool ok = Trapped(source_.trap, [this, into] {
      png_read_row(png_, reinterpret_cast<png_bytep>(into), nullptr);
    });
    if (!ok) Fail("row " + std::to_string(y) + " of " + std::to_string(header_.shape[1]));
  }

  InputFile file_;
  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  Header header_;
  Metadata metadata_;
  RowCursor cursor_{{1, 0, 0}};
  bool interlaced_ = false;
  bool started_ = false;
  std::vector<std::byte> row_;
  std::vector<std::byte> whole_;
};

}  // namespace

std::unique_ptr<Reader> OpenPng(InputFile file) {
  return std::make_unique<PngReader>(std::move(file));
}

}  // namespace tilery
