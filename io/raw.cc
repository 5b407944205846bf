// Raw arrays: nothing but samples, dense in the order c,z,y,x, described by the job.
#include "io/array_file.h"
#include "io/container.h"

namespace tilery {
namespace {

class RawReader final : public Reader {
 public:
  RawReader(InputFile file, const RawLayout& raw) : file_(std::move(file)) {
    int64_t all = static_cast<int64_t>(DTypeSize(raw.dtype));
    bool fits = raw.channels >= 1 && raw.offset >= 0;
    for (const int64_t n : {raw.shape[0], raw.shape[1], raw.shape[2], int64_t{raw.channels}}) {
      fits = fits && n >= 1 && !__builtin_mul_overflow(all, n, &all);
    }
    if (!fits || __builtin_add_overflow(all, raw.offset, &all)) {
      throw Error(Fault::kUsage,
                  "a raw file needs a shape, channels and an offset that are not "
                  "negative and stay below 2^63 bytes, not " +
                      ShapeToString(raw.shape, 3) + " with " + std::to_string(raw.channels) +
                      " channels from byte " + std::to_string(raw.offset));
    }
    if (file_.size() != all) {
      ThrowInput(file_.path(),
                 std::to_string(raw.channels) + " x " + ShapeToString(raw.shape, 3) + " " +
                     DTypeName(raw.dtype) + " after " + std::to_string(raw.offset) +
                     " bytes takes a file of " + std::to_string(all) + " bytes, this one has " +
                     std::to_string(file_.size()) + "; correct dtype, shape or offset");
    }
    layout_ = {raw.dtype,
               raw.channels,
               raw.shape,
               raw.offset,
               DenseStrides(raw.dtype, raw.channels, raw.shape),
               raw.big_endian && DTypeSize(raw.dtype) > 1};
    header_.format = "raw";
    header_.dtype = raw.dtype;
    header_.dims = raw.shape[0] > 1 ? 3 : 2;
    header_.channels = raw.channels;
    header_.shape = raw.shape;
  }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }
  void Read(const Box& box, const View& out) override { ReadArray(file_, layout_, box, out); }

 private:
  InputFile file_;
  ArrayLayout layout_;
  Header header_;
  Metadata metadata_;
};

class RawWriter final : public Writer {
 public:
  RawWriter(OutputFile& file, const Header& header)
      : file_(file), cursor_(header.shape), layout_{header.dtype, header.channels,
                                                    header.shape, 0,
                                                    {},           false} {}

  void Write(const Box& band, const ConstView& samples) override {
    WriteArrayRows(file_, layout_, cursor_.Continue(band), samples);
  }
  void Finish() override { cursor_.RequireEnd(); }

 private:
  OutputFile& file_;
  RowCursor cursor_;
  ArrayLayout layout_;
};

std::unique_ptr<Writer> CreateRaw(OutputFile& file, const WriteSpec& spec) {
  return std::make_unique<RawWriter>(file, spec.header);
}

std::string HoldsAnything(const Header&) { return ""; }

}  // namespace

std::unique_ptr<Reader> OpenRaw(InputFile file, const RawLayout& layout) {
  return std::make_unique<RawReader>(std::move(file), layout);
}

const Container& RawContainer() {
  static const Container container{"raw",     {".raw"},      nullptr,          nullptr,
                                   CreateRaw, HoldsAnything, SamplesOnlyLosses};
  return container;
}

}  // namespace tilery
