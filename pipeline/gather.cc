#include <algorithm>
#include <cmath>
#include <cstring>

#include "pipeline/ops.h"

namespace tilery {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Half {
  uint16_t bits;
};
double AsDouble(Half value) { return HalfToFloat(value.bits); }
template <typename T>
double AsDouble(T value) {
  return static_cast<double>(value);
}

// Rows of 1- and 2-byte integers: one look-up per sample. `values` is the entry of stored 0.
template <typename T>
void LookUp(const std::byte* from, int64_t stride, int64_t count, const float* values, float* to) {
  for (int64_t x = 0; x < count; ++x) to[x] = values[Load<T>(from + x * stride)];
}

template <typename T>
void Compute(const std::byte* from, int64_t stride, int64_t count, const NormaliseTerms& terms,
             float* to) {
  for (int64_t x = 0; x < count; ++x) {
    to[x] = Normalise(AsDouble(Load<T>(from + x * stride)), terms);
  }
}

void ConvertRow(DType dtype, const std::byte* from, int64_t stride, int64_t count,
                const InputTables::Channel& channel, float* to) {
  const float* values = channel.values ? channel.values->data() : nullptr;
  switch (dtype) {
    case DType::kU8:
      return LookUp<uint8_t>(from, stride, count, values, to);
    case DType::kI8:
      return LookUp<int8_t>(from, stride, count, values + 128, to);
    case DType::kU16:
      return LookUp<uint16_t>(from, stride, count, values, to);
    case DType::kI16:
      return LookUp<int16_t>(from, stride, count, values + 32768, to);
    case DType::kU32:
      return Compute<uint32_t>(from, stride, count, channel.terms, to);
    case DType::kI32:
      return Compute<int32_t>(from, stride, count, channel.terms, to);
    case DType::kF16:
      return Compute<Half>(from, stride, count, channel.terms, to);
    case DType::kF64:
      return Compute<double>(from, stride, count, channel.terms, to);
    case DType::kF32:
      break;
  }
  if (!channel.copies) return Compute<float>(from, stride, count, channel.terms, to);
  if (stride == sizeof(float)) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int64_t x = 0; x < count; ++x) to[x] = Load<float>(from + x * stride);
  }
}

InputTables::Channel MakeChannel(const Transfer& t, double mean, double std) {
  InputTables::Channel channel;
  channel.terms = {t.raw_lo,
                   t.raw_hi - t.raw_lo,
                   t.range_hi - t.range_lo,
                   t.range_lo,
                   mean,
                   std,
                   t.raw_lo == t.range_lo && t.raw_hi == t.range_hi,
                   mean != 0 || std != 1};
  channel.copies = t.in_dtype == DType::kF32 && channel.terms.as_is && !channel.terms.centred;
  channel.zero = Normalise(0.0, channel.terms);
  channel.filling = Normalise(t.raw_lo, channel.terms);
  if (IsInteger(t.in_dtype) && DTypeSize(t.in_dtype) <= 2) {
    const auto lowest = static_cast<int64_t>(LowestOf(t.in_dtype));
    const auto highest = static_cast<int64_t>(HighestOf(t.in_dtype));
    auto values = std::make_shared<std::vector<float>>();
    values->reserve(highest - lowest + 1);
    for (int64_t v = lowest; v <= highest; ++v) {
      values->push_back(Normalise(static_cast<double>(v), channel.terms));
    }
    channel.values = std::move(values);
  }
  return channel;
}

const InputTables::Channel& ChannelOf(const InputTables& tables, const Pass& pass, size_t c) {
  return pass.op == Pass::Op::kModel ? tables.model(c) : tables.plain();
}

// One row of the tile: stored voxels as far as the item reaches, then padding.
void GatherRow(const GatherSource& source, const std::byte* row, int64_t begin, int64_t count,
               const InputTables::Channel& channel, float* to) {
  const TileGrid& grid = *source.grid;
  const int64_t n = grid.shape[2], stride = source.input.stride[3];
  const DType dtype = source.tables->dtype();
  const int64_t inside = std::clamp<int64_t>(n - begin, 0, count);
  ConvertRow(dtype, row + begin * stride, stride, inside, channel, to);
  for (int64_t x = inside; x < count; ++x) {
    const int64_t from = PadSource(begin + x, n, grid.tiling.pad);
    if (from < 0) {
      to[x] = channel.zero;
    } else if (from >= begin && from - begin < x) {
      to[x] = to[from - begin];
    } else {
      ConvertRow(dtype, row + from * stride, stride, 1, channel, to + x);
    }
  }
  if (source.replace_nonfinite) {
    for (int64_t x = 0; x < count; ++x) to[x] = IsFinite(to[x]) ? to[x] : channel.filling;
  }
}

}  // namespace

InputTables::InputTables(const Transfer& t) : dtype_(t.in_dtype) {
  for (int32_t c = 0; c < t.model_in; ++c) {
    const double mean = t.mean.empty() ? 0 : t.mean.at(c), std = t.std.empty() ? 1 : t.std.at(c);
    const bool seen = c > 0 && model_[0].terms.mean == mean && model_[0].terms.std == std;
    model_.push_back(seen ? model_[0] : MakeChannel(t, mean, std));
  }
  const bool plain = !model_.empty() && !model_[0].terms.centred;
  plain_ = plain ? model_[0] : MakeChannel(t, 0, 1);
}

void GatherTile(const GatherSource& source, const Index& tile, const Pass& pass, float* out) {
  const TileGrid& grid = *source.grid;
  const Box box = grid.input_box(tile);
  const Index shape = box.shape();
  for (size_t c = 0; c < pass.in.size(); ++c) {
    const InputTables::Channel& channel = ChannelOf(*source.tables, pass, c);
    for (int64_t z = 0; z < shape[0]; ++z) {
      const int64_t from_z = PadSource(box.begin[0] + z, grid.shape[0], grid.tiling.pad);
      for (int64_t y = 0; y < shape[1]; ++y, out += shape[2]) {
        const int64_t from_y = PadSource(box.begin[1] + y, grid.shape[1], grid.tiling.pad);
        if (from_z < 0 || from_y < 0) {
          std::fill_n(out, shape[2], channel.zero);
          continue;
        }
        // The row's address as if the view began at the item's first voxel in x.
        const std::byte* row = source.input.data + pass.in[c] * source.input.stride[0] +
                               (from_z - source.input_box.begin[0]) * source.input.stride[1] +
                               (from_y - source.input_box.begin[1]) * source.input.stride[2] -
                               source.input_box.begin[2] * source.input.stride[3];
        GatherRow(source, row, box.begin[2], shape[2], channel, out);
      }
    }
  }
}

void DirectTile(const GatherSource& source, const Index& tile, const Pass& pass,
                std::vector<float>& scratch, float* out) {
  if (pass.op == Pass::Op::kCopy) return GatherTile(source, tile, pass, out);
  const TileGrid& grid = *source.grid;
  const Box box = grid.input_box(tile);
  const Index in = box.shape(), shape = grid.output_tile();
  scratch.resize(pass.in.size() * Product(in));
  GatherTile(source, tile, pass, scratch.data());

  struct Tap {
    int64_t below, above;
    double share;
  };
  std::array<std::vector<Tap>, 3> taps;
  for (int a = 0; a < 3; ++a) {
    const int64_t last = std::min(in[a], grid.shape[a] - box.begin[a]) - 1;
    for (int64_t o = 0; o < shape[a]; ++o) {
      const LinearTap tap = ResizeTap(o, grid.tiling.scale[a].num, grid.tiling.scale[a].den);
      taps[a].push_back({std::clamp<int64_t>(tap.below, 0, last),
                         std::clamp<int64_t>(tap.below + 1, 0, last), tap.share});
    }
  }
  for (size_t c = 0; c < pass.in.size(); ++c) {
    const float* plane = scratch.data() + c * in[0] * in[1] * in[2];
    const auto along_x = [&](int64_t z, int64_t y, const Tap& x) {
      const float* row = plane + (z * in[1] + y) * in[2];
      return row[x.below] + x.share * (static_cast<double>(row[x.above]) - row[x.below]);
    };
    for (const Tap& z : taps[0]) {
      for (const Tap& y : taps[1]) {
        for (const Tap& x : taps[2]) {
          double at[2];
          for (int side = 0; side < 2; ++side) {
            const int64_t from_z = side == 0 ? z.below : z.above;
            const double low = along_x(from_z, y.below, x);
            at[side] = low + y.share * (along_x(from_z, y.above, x) - low);
          }
          *out++ = static_cast<float>(at[0] + z.share * (at[1] - at[0]));
        }
      }
    }
  }
}

}  // namespace tilery
