#include "io/view.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "io/error.h"

namespace tilery {
namespace {

template <typename Byte>
BasicView<Byte> MakeDense(Byte* data, DType type, int64_t channels, const Index& shape,
                          Layout layout) {
  BasicView<Byte> view{data, type, channels, shape, {}};
  const auto size = static_cast<int64_t>(DTypeSize(type));
  if (layout == Layout::kInterleaved) {
    const int64_t x = channels * size;
    view.stride = {size, shape[1] * shape[2] * x, shape[2] * x, x};
  } else {
    const int64_t plane = shape[1] * shape[2] * size;
    view.stride = {shape[0] * plane, plane, shape[2] * size, size};
  }
  return view;
}

// One loop of a copy: `count` steps of `from` and `to` bytes.
struct Loop {
  int64_t count;
  int64_t from;
  int64_t to;
};

// Loops of the copy, outermost first: extents of 1 dropped, ordered by the target's stride so that
// writing is sequential, and joined wherever both sides continue without a gap. Dense to dense
// becomes a single loop whatever the layout.
struct Loops {
  std::array<Loop, 4> loop;
  int count = 0;
};

Loops PlanCopy(const ConstView& from, const View& to) {
  const std::array<int64_t, 4> extent = {from.channels, from.shape[0], from.shape[1],
                                         from.shape[2]};
  Loops all;
  for (int axis = 0; axis < 4; ++axis) {
    if (extent[axis] != 1) {
      all.loop[all.count++] = {extent[axis], from.stride[axis], to.stride[axis]};
    }
  }
  std::stable_sort(all.loop.begin(), all.loop.begin() + all.count,
                   [](const Loop& a, const Loop& b) { return std::abs(a.to) > std::abs(b.to); });
  Loops joined;
  for (int i = 0; i < all.count; ++i) {
    const Loop& inner = all.loop[i];
    Loop* outer = joined.count > 0 ? &joined.loop[joined.count - 1] : nullptr;
    if (outer != nullptr && outer->from == inner.from * inner.count &&
        outer->to == inner.to * inner.count) {
      *outer = {outer->count * inner.count, inner.from, inner.to};
    } else {
      joined.loop[joined.count++] = inner;
    }
  }
  if (joined.count == 0) joined.loop[joined.count++] = {1, 0, 0};  // a single sample
  return joined;
}

template <size_t kSize>
void CopyLine(const std::byte* from, std::byte* to, const Loop& line) {
  for (int64_t i = 0; i < line.count; ++i) {
    std::memcpy(to, from, kSize);
    from += line.from;
    to += line.to;
  }
}

template <size_t kSize>
void CopyLoops(const std::byte* from, std::byte* to, const Loop* loop, int count) {
  constexpr auto kStep = static_cast<int64_t>(kSize);
  if (count > 1) {
    for (int64_t i = 0; i < loop->count; ++i) {
      CopyLoops<kSize>(from + i * loop->from, to + i * loop->to, loop + 1, count - 1);
    }
  } else if (loop->from == kStep && loop->to == kStep) {
    std::memcpy(to, from, kSize * static_cast<size_t>(loop->count));
  } else {
    CopyLine<kSize>(from, to, *loop);
  }
}

}  // namespace

View DenseView(std::byte* data, DType type, int64_t channels, const Index& shape, Layout layout) {
  return MakeDense(data, type, channels, shape, layout);
}

ConstView DenseView(const std::byte* data, DType type, int64_t channels, const Index& shape,
                    Layout layout) {
  return MakeDense(data, type, channels, shape, layout);
}

bool IsDense(const ConstView& view, Layout layout) {
  const ConstView dense = MakeDense(view.data, view.dtype, view.channels, view.shape, layout);
  const std::array<int64_t, 4> extent = {view.channels, view.shape[0], view.shape[1],
                                         view.shape[2]};
  for (int axis = 0; axis < 4; ++axis) {
    if (extent[axis] > 1 && view.stride[axis] != dense.stride[axis]) return false;
  }
  return true;
}

void CopyView(const ConstView& from, const View& to) {
  if (from.dtype != to.dtype || from.channels != to.channels || from.shape != to.shape) {
    throw Error(Fault::kInternal,
                "copy between unlike views: " + std::string(DTypeName(from.dtype)) + " " +
                    ShapeToString(from.shape, 3) + " with " + std::to_string(from.channels) +
                    " channels to " + DTypeName(to.dtype) + " " + ShapeToString(to.shape, 3) +
                    " with " + std::to_string(to.channels));
  }
  if (from.channels <= 0 || Box::Whole(from.shape).empty()) return;
  const Loops loops = PlanCopy(from, to);
  switch (DTypeSize(from.dtype)) {
    case 1:
      return CopyLoops<1>(from.data, to.data, loops.loop.data(), loops.count);
    case 2:
      return CopyLoops<2>(from.data, to.data, loops.loop.data(), loops.count);
    case 4:
      return CopyLoops<4>(from.data, to.data, loops.loop.data(), loops.count);
    default:
      return CopyLoops<8>(from.data, to.data, loops.loop.data(), loops.count);
  }
}

}  // namespace tilery
