// What a device does beside the model, for the CPU: gather a tile into the model's input, blend a
// tile of its output into sums, finish sums into samples. Every function is pure in its arguments
// and may run on many threads at once over disjoint outputs. The scalar formulas are those of
// pipeline/formulas.h, so another device that uses them gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/view.h"
#include "pipeline/formulas.h"
#include "pipeline/geometry.h"
#include "pipeline/transfer.h"
#include "pipeline/window.h"

namespace tilery {

// How stored samples become model input, prepared from a Transfer: one table entry per stored value
// for samples of one or two bytes, terms for all others. Immutable.
class InputTables {
 public:
  explicit InputTables(const Transfer& transfer);

  struct Channel {
    NormaliseTerms terms{};
    std::shared_ptr<const std::vector<float>> values;  // null: computed; else one per stored value,
                                                       // lowest first
    bool copies = false;                               // f32 samples go in bit for bit
    float zero = 0;     // model input of the stored value 0 (pad: zero)
    float filling = 0;  // of range_lo: stands in for what is not finite
  };
  // `c`: model input channel. Passes without a model use `plain`: no mean, no std.
  const Channel& model(size_t c) const { return model_[c]; }
  const Channel& plain() const { return plain_; }
  DType dtype() const { return dtype_; }

 private:
  DType dtype_;
  std::vector<Channel> model_;
  Channel plain_;
};

// Where a unit's tiles are read from. Refers to what the caller keeps alive.
struct GatherSource {
  ConstView input;  // stored samples of `input_box`, any strides
  Box input_box;    // item voxels; contains what the tiles read
  const TileGrid* grid = nullptr;
  const InputTables* tables = nullptr;
  bool replace_nonfinite =
      false;  // some samples are not finite: the model sees Channel::filling there
};

// Writes the tile at grid position `tile` for `pass` to `out`: f32 [pass.in.size(), z, y, x] dense,
// the grid's tile shape, padded at the item's end by the grid's mode (zero: the stored value 0).
void GatherTile(const GatherSource& source, const Index& tile, const Pass& pass, float* out);

// The answer of a pass without a model: `out` f32 [pass.in.size(), z, y, x], the tile at output
// resolution. kCopy gathers; kResize interpolates linearly inside the tile's part of the item,
// edges repeated. `scratch` is grown as needed.
void DirectTile(const GatherSource& source, const Index& tile, const Pass& pass,
                std::vector<float>& scratch, float* out);

// Stored voxels of `region` (item voxels, inside the source's box) where a channel that any pass
// reads is not finite, as f32 sees it. 0 for integer samples, at no cost.
int64_t CountNonFinite(const GatherSource& source, const std::vector<Pass>& passes,
                       const Box& region);

// f32 sums [c, z, y, x] dense over `box` (output voxels of the item).
struct Sums {
  float* data = nullptr;
  Box box;
  int64_t channels = 0;

  float* row(int64_t c, int64_t z, int64_t y) const {
    return data + ((c * box.extent(0) + z - box.begin[0]) * box.extent(1) + y - box.begin[1]) *
                      box.extent(2);
  }
};

// Adds one tile of model output to the sums: weight (wz * wy) * wx, product and sum each rounded to
// f32. `output`: f32 [channels, z, y, x] dense over `output_box`, which may reach past the item;
// the windows lie inside it and inside sums.box.
void BlendTile(const float* output, int32_t channels, const Box& output_box, const TileWindow& wz,
               const TileWindow& wy, const TileWindow& wx, const Pass& pass, const Sums& sums);

// Puts not-a-number into all sums of a pass wherever an output voxel comes from a stored voxel that
// is not finite in a channel of that pass: output voxel o covers stored [floor(o q/p), ceil((o+1)
// q/p)).
void RestoreNonFinite(const GatherSource& source, const std::vector<Pass>& passes,
                      const Sums& sums);

// True if all of `count` values are finite.
bool AllFinite(const float* values, int64_t count);

// From sums to stored samples, prepared from a Transfer: post operations over the channels that are
// not alpha, then conversion; alpha (clamped to the model's range) follows as the last channels.
// Immutable. Error(kUsage) if the operations contradict the channel counts.
class Finalizer {
 public:
  explicit Finalizer(const Transfer& transfer);

  // `region` of planar sums -> `out` (out_dtype, out_channels, shape of region, any strides).
  // Error(kModel) if a finite result does not fit f16.
  void FromSums(const Sums& sums, const Box& region, const View& out) const;
  // The same from interleaved sums: f32 [z, y, x, accumulators] dense.
  void FromInterleaved(const float* sums, const Index& shape, const View& out) const;

  // What other devices need to do the same.
  const std::vector<int32_t>& colours() const { return colours_; }  // accumulator channels
  const std::vector<int32_t>& alphas() const { return alphas_; }
  const QuantiseTerms& colour_terms() const { return colour_terms_; }
  const QuantiseTerms& alpha_terms() const { return alpha_terms_; }
  float range_lo() const { return range_lo_; }
  float range_hi() const { return range_hi_; }

 private:
  struct Scratch;
  void Chunk(Scratch& scratch, int64_t count, const View& out, int64_t z, int64_t y,
             int64_t x) const;
  void ApplyPost(Scratch& scratch, int64_t count) const;

  std::vector<PostOp> post_;
  std::vector<int32_t> colours_, alphas_;  // accumulator channels
  int32_t accumulators_;
  DType dtype_;
  int32_t out_channels_;
  QuantiseTerms colour_terms_{}, alpha_terms_{};
  float range_lo_, range_hi_;
};

}  // namespace tilery
