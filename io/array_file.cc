#include "io/array_file.h"

#include <algorithm>
#include <memory>

#include "io/byte_order.h"
#include "io/error.h"

namespace tilery {
namespace {

constexpr int64_t kSpan = 4 << 20;  // most bytes of one read
constexpr int64_t kGap = 4096;      // gaps up to this cost less than another read

struct Axis {
  int64_t count;
  int64_t file;  // stride in the file
  int64_t out;   // stride in the target
  int id;        // c, z, y, x
};

int64_t Extent(const ConstView& view, int axis) {
  return axis == 0 ? view.channels : view.shape[static_cast<size_t>(axis - 1)];
}
template <typename AnyView>
void SetExtent(AnyView& view, int axis, int64_t count) {
  if (axis == 0) {
    view.channels = count;
  } else {
    view.shape[static_cast<size_t>(axis - 1)] = count;
  }
}

// Reads one box by spans: the inner axes, as far as they lie close together in the file, at once.
class SpanReader {
 public:
  SpanReader(const InputFile& file, const ArrayLayout& layout, const Box& box, const View& out)
      : file_(file), layout_(layout), out_(out) {
    base_ = layout.offset;
    for (size_t i = 0; i < 3; ++i) base_ += box.begin[i] * layout.stride[i + 1];
    for (int id = 0; id < 4; ++id) {
      const auto i = static_cast<size_t>(id);
      axes_[i] = {Extent(out, id), layout.stride[i], out.stride[i], id};
    }
    std::stable_sort(axes_.begin(), axes_.end(),
                     [](const Axis& a, const Axis& b) { return a.file > b.file; });
    ChooseSpan();
  }

  void Run() {
    if (out_.bytes() > 0) Outer(0, base_, out_.data);
  }

 private:
  // Axes from `inner_` on belong to each span whole; of the one before, `block_` steps at a time.
  void ChooseSpan() {
    const auto size = static_cast<int64_t>(DTypeSize(layout_.dtype));
    span_ = size;
    inner_ = 4;
    while (inner_ > 0) {
      const Axis& axis = axes_[static_cast<size_t>(inner_ - 1)];
      if (axis.count > 1) {
        const int64_t gap = axis.file - span_;
        if (gap > kGap && gap > 3 * span_) break;  // mostly waste
        const int64_t whole = (axis.count - 1) * axis.file + span_;
        if (whole > kSpan) {
          block_ = std::max<int64_t>(1, (kSpan - span_) / axis.file + 1);
          break;
        }
        span_ = whole;
      }
      --inner_;
    }
  }

  void Outer(int depth, int64_t at, std::byte* to) {
    if (depth == inner_) return ReadSpan(at, to, 1);
    const Axis& axis = axes_[static_cast<size_t>(depth)];
    const int64_t step = depth == inner_ - 1 ? block_ : 1;
    for (int64_t i = 0; i < axis.count; i += step) {
      const int64_t n = std::min(step, axis.count - i);
      if (depth == inner_ - 1) {
        ReadSpan(at + i * axis.file, to + i * axis.out, n);
      } else {
        Outer(depth + 1, at + i * axis.file, to + i * axis.out);
      }
    }
  }

  // `steps` of the axis before the inner ones, which may be none (then 1).
  void ReadSpan(int64_t at, std::byte* to, int64_t steps) {
    View target = out_;
    target.data = to;
    ConstView source{nullptr, layout_.dtype, 1, {1, 1, 1}, layout_.stride};
    int64_t useful = static_cast<int64_t>(DTypeSize(layout_.dtype));
    bool same = true;  // the target has the file's own layout
    for (int i = 0; i < 4; ++i) {
      const Axis& axis = axes_[static_cast<size_t>(i)];
      const int64_t count = i >= inner_ ? axis.count : i == inner_ - 1 ? steps : 1;
      SetExtent(target, axis.id, count);
      SetExtent(source, axis.id, count);
      useful *= count;
      if (count > 1 && axis.file != axis.out) same = false;
    }
    const int64_t bytes =
        steps > 1 ? (steps - 1) * axes_[static_cast<size_t>(inner_ - 1)].file + span_ : span_;
    const bool direct = same && bytes == useful;
    if (!direct && buffer_ == nullptr) {
      const int64_t most =
          inner_ > 0 ? (block_ - 1) * axes_[static_cast<size_t>(inner_ - 1)].file + span_ : span_;
      buffer_.reset(new std::byte[static_cast<size_t>(most)]);
    }
    std::byte* into = direct ? to : buffer_.get();
    const auto size = static_cast<size_t>(bytes);
    file_.ReadAt(at, {into, size});
    if (layout_.swap) {
      const size_t sample = DTypeSize(layout_.dtype);
      SwapSamples(into, size / sample, sample);
    }
    if (direct) return;
    source.data = into;
    CopyView(source, target);
  }

  const InputFile& file_;
  const ArrayLayout& layout_;
  const View& out_;
  int64_t base_ = 0;
  std::array<Axis, 4> axes_;
  int inner_ = 4;
  int64_t span_ = 0;
  int64_t block_ = 1;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace

std::array<int64_t, 4> DenseStrides(DType dtype, int64_t channels, const Index& shape) {
  (void)channels;
  const auto x = static_cast<int64_t>(DTypeSize(dtype));
  const int64_t y = x * shape[2];
  const int64_t z = y * shape[1];
  return {z * shape[0], z, y, x};
}

std::array<int64_t, 4> FortranStrides(DType dtype, int64_t channels, const Index& shape) {
  const auto c = static_cast<int64_t>(DTypeSize(dtype));
  const int64_t z = c * channels;
  const int64_t y = z * shape[0];
  return {c, z, y, y * shape[1]};
}

void ReadArray(const InputFile& file, const ArrayLayout& layout, const Box& box, const View& out) {
  if (!Box::Whole(layout.shape).contains(box) || out.dtype != layout.dtype ||
      out.channels != layout.channels || out.shape != box.shape()) {
    throw Error(Fault::kInternal, "box " + ToString(box) + " does not fit array or target");
  }
  SpanReader(file, layout, box, out).Run();
}

void WriteArrayRows(OutputFile& file, const ArrayLayout& layout, const RowRange& rows,
                    const ConstView& samples) {
  const auto size = static_cast<int64_t>(DTypeSize(layout.dtype));
  const int64_t row_bytes = layout.shape[2] * size;
  const int64_t height = layout.shape[1];
  const int64_t most = std::max<int64_t>(1, kSpan / row_bytes);
  std::unique_ptr<std::byte[]> buffer;
  for (int64_t c = 0; c < layout.channels; ++c) {
    int64_t next = 0;
    for (int64_t row = rows.begin; row < rows.end; row = next) {
      // Rows of one plane at a time, so that they form a box of `samples`.
      const int64_t plane = row / height;
      next = std::min({row + most, rows.end, (plane + 1) * height});
      const int64_t z = plane - rows.begin / height;
      const int64_t y = z == 0 ? row - rows.begin : row % height;
      const ConstView from =
          samples.Crop({{z, y, 0}, {z + 1, y + next - row, layout.shape[2]}}).Channels(c, 1);
      const std::byte* data = from.data;
      if (!IsDense(from, Layout::kPlanar)) {
        if (buffer == nullptr) buffer.reset(new std::byte[static_cast<size_t>(most * row_bytes)]);
        CopyView(from, DenseView(buffer.get(), layout.dtype, 1, from.shape, Layout::kPlanar));
        data = buffer.get();
      }
      const int64_t at = layout.offset + c * layout.shape[0] * height * row_bytes + row * row_bytes;
      file.WriteAt(at, {data, static_cast<size_t>((next - row) * row_bytes)});
    }
  }
}

}  // namespace tilery
