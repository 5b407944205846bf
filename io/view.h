// Strided views over sample memory: [channel, z, y, x] with any strides, so interleaved and planar
// data look alike. A view owns nothing; whoever made the memory keeps it alive. Strides are in
// bytes and may be 0 (broadcast) in const views.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/box.h"
#include "io/dtype.h"

namespace tilery {

enum class Layout { kInterleaved, kPlanar };  // [z,y,x,c] or [c,z,y,x]

template <typename Byte>
struct BasicView {
  Byte* data = nullptr;
  DType dtype = DType::kU8;
  int64_t channels = 0;
  Index shape{0, 0, 0};
  std::array<int64_t, 4> stride{0, 0, 0, 0};  // c, z, y, x

  Byte* at(int64_t c, int64_t z, int64_t y, int64_t x) const {
    return data + c * stride[0] + z * stride[1] + y * stride[2] + x * stride[3];
  }
  // The part of this view inside `box`, which counts from this view's own origin.
  BasicView Crop(const Box& box) const {
    BasicView out = *this;
    out.data = at(0, box.begin[0], box.begin[1], box.begin[2]);
    out.shape = box.shape();
    return out;
  }
  BasicView Channels(int64_t first, int64_t count) const {
    BasicView out = *this;
    out.data = data + first * stride[0];
    out.channels = count;
    return out;
  }
  int64_t bytes() const {
    return channels * shape[0] * shape[1] * shape[2] * static_cast<int64_t>(DTypeSize(dtype));
  }
  operator BasicView<const Byte>() const { return {data, dtype, channels, shape, stride}; }
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

// A dense view over memory of at least channels * voxels * size bytes.
View DenseView(std::byte* data, DType type, int64_t channels, const Index& shape, Layout layout);
ConstView DenseView(const std::byte* data, DType type, int64_t channels, const Index& shape,
                    Layout layout);
bool IsDense(const ConstView& view, Layout layout);

// Copies samples between views of equal dtype, channels and shape (checked; Error(kInternal)).
void CopyView(const ConstView& from, const View& to);

}  // namespace tilery
