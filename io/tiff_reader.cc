// Reading of TIFF: any box of any page layout, through a bounded cache of decoded strips and tiles.
//
// Uncompressed chunks are read in place by positional reads. Compressed ones are decoded whole and
// cached; where that would take too much (a large picture in one strip), rows are decoded one by
// one. Access is random only where a narrow box decodes little beside itself.
#include <tiffio.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

#include "io/array_file.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/row_cursor.h"
#include "io/tiff.h"

namespace tilery {
namespace {

using Chunk = std::shared_ptr<const std::vector<std::byte>>;

constexpr int64_t kChunkLimit = 64 << 20;   // of a decoded strip (with those of other planes that
                                            // hold the same rows); larger ones are read by rows
constexpr int64_t kCacheBytes = 64 << 20;   // always allowed
constexpr int64_t kCacheLimit = 256 << 20;  // for one row of chunks

// Decoded chunks, the least recently used dropped first. Thread-safe.
class ChunkCache {
 public:
  explicit ChunkCache(int64_t limit) : limit_(limit) {}

  Chunk Find(int64_t index) {
    const std::lock_guard lock(mutex_);
    const auto found = where_.find(index);
    if (found == where_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }

  void Add(int64_t index, Chunk chunk) {
    const std::lock_guard lock(mutex_);
    if (where_.contains(index)) return;
    bytes_ += static_cast<int64_t>(chunk->size());
    recent_.emplace_front(index, std::move(chunk));
    where_[index] = recent_.begin();
    while (bytes_ > limit_ && recent_.size() > 1) {
      bytes_ -= static_cast<int64_t>(recent_.back().second->size());
      where_.erase(recent_.back().first);
      recent_.pop_back();
    }
  }

 private:
  const int64_t limit_;
  std::mutex mutex_;
  // Guarded by mutex_:
  int64_t bytes_ = 0;
  std::list<std::pair<int64_t, Chunk>> recent_;
  std::unordered_map<int64_t, std::list<std::pair<int64_t, Chunk>>::iterator> where_;
};

class TiffReader final : public Reader {
 public:
  explicit TiffReader(InputFile file) : file_(std::move(file)) {
    auto handle = std::make_unique<TiffHandle>(file_, kMode);
    picture_ = ReadTiffPicture(*handle, file_);
    directory_ = TIFFCurrentDirectory(handle->get());
    metadata_ = ReadTiffMetadata(*handle, file_);
    header_.format = "tiff";
    header_.dtype = picture_.dtype;
    header_.alpha = picture_.alpha;
    header_.channels = picture_.channels;
    header_.shape = {1, picture_.height, picture_.width};
    cursor_ = RowCursor(header_.shape);
    by_rows_ = !picture_.direct && !picture_.tiled && DecodedBytes() > kChunkLimit / Planes();
    // Where chunks span the width, boxes beside each other would decode the same ones each time.
    const bool full_width = !picture_.direct && picture_.chunks_across() == 1;
    header_.access = full_width ? Access::kRows : Access::kRandom;
    if (!picture_.direct && !by_rows_ && DecodedBytes() > kWholePictureLimit) {
      ThrowInput(file_.path(), "its tiles take " + Bytes(DecodedBytes()) + " each, the limit is " +
                                   Bytes(kWholePictureLimit) + "; save it with smaller tiles");
    }
    if (by_rows_ && std::max(PackedRowBytes(), ExpandedRowBytes()) > kWholePictureLimit) {
      ThrowInput(file_.path(), "one row would take " + Bytes(ExpandedRowBytes()) +
                                   ", the limit is " + Bytes(kWholePictureLimit));
    }
    const int64_t row_of_chunks = (picture_.chunks_across() + 1) * Planes();
    const int64_t useful =
        DecodedBytes() > kCacheLimit / row_of_chunks ? kCacheLimit : DecodedBytes() * row_of_chunks;
    cache_ = std::make_unique<ChunkCache>(std::max(kCacheBytes, useful));
    idle_.push_back(std::move(handle));
  }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }

  void Read(const Box& box, const View& out) override {
    if (!Box::Whole(header_.shape).contains(box) || out.shape != box.shape() ||
        out.channels != header_.channels || out.dtype != header_.dtype) {
      throw Error(Fault::kInternal, "box " + ToString(box) + " does not fit picture or target");
    }
    if (by_rows_) {
      const int64_t due = cursor_.next();
      ReadRows(due, cursor_.Advance(box), out);
    } else {
      ReadChunks(box, out);
    }
    if (picture_.invert) InvertTiffSamples(out.Channels(0, 1));
  }

 private:
  static constexpr char kMode[] = "rm";  // m: no memory maps

  int Planes() const { return picture_.separate ? picture_.samples : 1; }
  // Channels that a chunk holds once its bits and palette are expanded.
  int ChunkChannels() const { return picture_.palette.empty() ? picture_.chunk_samples() : 3; }
  int64_t PackedRowBytes() const {
    return (picture_.chunk_width * picture_.chunk_samples() * picture_.bits + 7) / 8;
  }
  int64_t ExpandedRowBytes() const {
    return picture_.chunk_width * ChunkChannels() * static_cast<int64_t>(DTypeSize(picture_.dtype));
  }
  int64_t DecodedBytes() const {
    return picture_.expands() ? ExpandedRowBytes() * picture_.chunk_height : picture_.chunk_bytes;
  }

  void ReadChunks(const Box& box, const View& out) {
    const int64_t h = picture_.chunk_height, w = picture_.chunk_width;
    for (int64_t plane = 0; plane < Planes(); ++plane) {
      const View target = picture_.separate ? out.Channels(plane, 1) : out;
      for (int64_t cy = box.begin[1] / h; cy * h < box.end[1]; ++cy) {
        for (int64_t cx = box.begin[2] / w; cx * w < box.end[2]; ++cx) {
          const Index origin{0, cy * h, cx * w};
          const Box part = Intersect(box, {origin, {1, origin[1] + h, origin[2] + w}});
          const View to = target.Crop(Shift(part, {0, -box.begin[1], -box.begin[2]}));
          const int64_t index =
              (plane * picture_.chunks_down() + cy) * picture_.chunks_across() + cx;
          ReadPart(index, Shift(part, {0, -origin[1], -origin[2]}), to);
        }
      }
    }
  }

  // `part` counts from the chunk's own corner.
  void ReadPart(int64_t index, const Box& part, const View& to) {
    const Index shape{1, RowsOf(index), picture_.chunk_width};
    if (picture_.direct) {
      ReadArray(file_, DirectLayout(index, shape), part, to);
      return;
    }
    Chunk chunk = cache_->Find(index);
    if (chunk == nullptr) {
      chunk = Decode(index);
      cache_->Add(index, chunk);
    }
    const ConstView all =
        DenseView(chunk->data(), picture_.dtype, ChunkChannels(), shape, Layout::kInterleaved);
    CopyView(all.Crop(part), to);
  }

  // Tiles are always whole, the last strip may be short.
  int64_t RowsOf(int64_t index) const {
    if (picture_.tiled) return picture_.chunk_height;
    const int64_t strip = index % picture_.chunks_down();
    return std::min(picture_.chunk_height, picture_.height - strip * picture_.chunk_height);
  }

  ArrayLayout DirectLayout(int64_t index, const Index& shape) {
    int64_t offset = 0;
    WithHandle([&](TiffHandle& handle) {
      handle.Call("the table of its strips", [&] {
        offset =
            static_cast<int64_t>(TIFFGetStrileOffset(handle.get(), static_cast<uint32_t>(index)));
        return true;
      });
    });
    const auto size = static_cast<int64_t>(DTypeSize(picture_.dtype));
    const int64_t x = size * picture_.chunk_samples();
    ArrayLayout layout{picture_.dtype,
                       picture_.chunk_samples(),
                       shape,
                       offset,
                       {size, x * shape[2] * shape[1], x * shape[2], x},
                       picture_.swapped};
    if (offset <= 0 || offset > file_.size() - layout.bytes()) {
      ThrowInput(file_.path(), "damaged TIFF: strip or tile " + std::to_string(index) +
                                   " should take " + std::to_string(layout.bytes()) +
                                   " bytes from byte " + std::to_string(offset) +
                                   ", the file ends at " + std::to_string(file_.size()));
    }
    return layout;
  }

  Chunk Decode(int64_t index) {
    const int64_t rows = RowsOf(index);
    const int64_t packed_bytes = picture_.chunk_bytes / picture_.chunk_height * rows;
    std::vector<std::byte> packed(static_cast<size_t>(packed_bytes));
    WithHandle([&](TiffHandle& handle) {
      handle.Decode((picture_.tiled ? "tile " : "strip ") + std::to_string(index), [&] {
        const auto number = static_cast<uint32_t>(index);
        const tmsize_t got =
            picture_.tiled
                ? TIFFReadEncodedTile(handle.get(), number, packed.data(), packed_bytes)
                : TIFFReadEncodedStrip(handle.get(), number, packed.data(), packed_bytes);
        return got == packed_bytes;
      });
    });
    if (!picture_.expands()) {
      return std::make_shared<const std::vector<std::byte>>(std::move(packed));
    }
    std::vector<std::byte> expanded(static_cast<size_t>(ExpandedRowBytes() * rows));
    for (int64_t y = 0; y < rows; ++y) {
      ExpandTiffRow(picture_, packed.data() + y * PackedRowBytes(), picture_.chunk_width,
                    expanded.data() + y * ExpandedRowBytes());
    }
    return std::make_shared<const std::vector<std::byte>>(std::move(expanded));
  }

  // Rows in order, through one handle per plane, since each decoder keeps its place in one strip.
  // Rows that are left out are decoded too, from `due` or the start of their strip on.
  void ReadRows(int64_t due, const RowRange& rows, const View& out) {
    const int planes = Planes();
    while (static_cast<int>(idle_.size()) < planes) idle_.push_back(NewHandle());
    std::vector<std::byte> packed(static_cast<size_t>(PackedRowBytes()));
    std::vector<std::byte> expanded(picture_.expands() ? static_cast<size_t>(ExpandedRowBytes())
                                                       : 0);
    const std::byte* samples = picture_.expands() ? expanded.data() : packed.data();
    const ConstView line = DenseView(samples, picture_.dtype, ChunkChannels(),
                                     {1, 1, picture_.width}, Layout::kInterleaved);
    const int64_t strip = rows.begin / picture_.chunk_height * picture_.chunk_height;
    for (int64_t y = std::max(due, strip); y < rows.end; ++y) {
      for (int plane = 0; plane < planes; ++plane) {
        TiffHandle& handle = *idle_[static_cast<size_t>(plane)];
        handle.Decode("row " + std::to_string(y), [&] {
          return TIFFReadScanline(handle.get(), packed.data(), static_cast<uint32_t>(y),
                                  static_cast<uint16_t>(plane)) == 1;
        });
        if (y < rows.begin) continue;
        if (picture_.expands()) {
          ExpandTiffRow(picture_, packed.data(), picture_.width, expanded.data());
        }
        const int64_t at = y - rows.begin;
        const View target = out.Crop({{0, at, 0}, {1, at + 1, picture_.width}});
        CopyView(line, picture_.separate ? target.Channels(plane, 1) : target);
      }
    }
  }

  std::unique_ptr<TiffHandle> NewHandle() {
    auto handle = std::make_unique<TiffHandle>(file_, kMode);
    handle->Call("its page", [&] {
      return TIFFSetDirectory(handle->get(), static_cast<tdir_t>(directory_)) == 1;
    });
    uint16_t photometric = 0;
    if (TIFFGetField(handle->get(), TIFFTAG_PHOTOMETRIC, &photometric) == 1 &&
        photometric == PHOTOMETRIC_YCBCR) {
      TIFFSetField(handle->get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    }
    return handle;
  }

  // Lends each thread a handle of its own.
  template <typename Use>
  void WithHandle(Use&& use) {
    std::unique_ptr<TiffHandle> handle;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        handle = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (handle == nullptr) handle = NewHandle();
    use(*handle);  // a handle that failed is not used again
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(handle));
  }

  InputFile file_;
  TiffPicture picture_;
  int64_t directory_ = 0;
  Header header_;
  Metadata metadata_;
  bool by_rows_ = false;
  RowCursor cursor_{{1, 0, 0}};
  std::unique_ptr<ChunkCache> cache_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TiffHandle>> idle_;  // guarded by mutex_, but for reading by rows
};

}  // namespace

std::unique_ptr<Reader> OpenTiff(InputFile file) {
  return std::make_unique<TiffReader>(std::move(file));
}

}  // namespace tilery
