// The work of pipeline/ops.h on an NVIDIA GPU: the same formulas, the same order of operations, the
// same bits.
//
// Plain data in, one launch each on the given stream, no Torch and no CUDA types. All pointers are
// device memory. Nothing is allocated and nothing waits. Errors of a launch: Error(kInternal) with
// CUDA's text; those of a kernel show at the stream's next synchronisation. Compiled as C++17.
#pragma once

#include <cstdint>

#include "io/dtype.h"
#include "pipeline/formulas.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace tilery::cuda {

using Stream = CUstream_st*;

inline constexpr int kMaxInputs = 32;  // channels of a model's input
inline constexpr int kMaxSums = 256;   // channels of sums
inline constexpr int kMaxPost = 8;     // post operations
inline constexpr int kMaxLabels = 256;

enum class Pad : uint8_t { kReflect, kEdge, kZero };          // as PadMode
enum class ModelType : uint8_t { kF32, kF16, kBf16 };         // of the model's tensors
enum class ModelLayout : uint8_t { kPlanar, kChannelsLast };  // of a slot: [c,z,y,x] or [z,y,x,c]

struct InputChannel {
  int32_t stored;  // channel of the samples
  NormaliseTerms terms;
  const float* values;  // null: computed; else one entry per stored value, lowest first
  float zero, filling;  // of padding with zero; of what is not finite
};

// One tile of stored samples -> one slot of the model's input.
struct GatherTask {
  const void* samples;  // of `origin` on, aligned to its type
  DType dtype;
  int64_t stride[4];  // bytes: c, z, y, x
  int64_t origin[3];  // item voxel that `samples` begins at
  int64_t item[3];    // item's shape
  int64_t begin[3];   // tile's first voxel in the item
  int64_t tile[3];    // its shape; may reach past the item: padding
  Pad pad;
  bool replace_nonfinite;
  int32_t channels;  // <= kMaxInputs
  InputChannel channel[kMaxInputs];
  void* out;  // tile voxels x channels of `type`
  ModelType type;
  ModelLayout layout;
};
void Gather(const GatherTask& task, Stream stream);

// Sets flags[i] to 1 if any of the `count` values of slot i is not finite, else to 0: slots follow
// each other without gaps.
void FindNonFinite(const void* values, ModelType type, int64_t count, int32_t slots, int32_t* flags,
                   Stream stream);

// Sets hashes[i] to a number that is the same for equal bytes, and another one for others but for a
// chance of about 2^-64. Slots follow each other without gaps and have a multiple of 2 bytes.
void HashSlots(const void* values, int64_t slot_bytes, int32_t slots, uint64_t* hashes,
               Stream stream);

// One slot of model output -> sums, as BlendTile. The windows' part of the tile is `box`, in output
// voxels.
struct BlendTask {
  const void* output;  // one slot
  ModelType type;
  ModelLayout layout;
  int32_t channels;                      // of the slot
  int64_t tile_begin[3], tile_shape[3];  // of the slot, output voxels
  int64_t begin[3], shape[3];            // where the windows are not zero; inside tile and sums
  const float* window[3];                // weights of that part: z, y, x
  bool mean;  // gray of all channels; else `out` names one per accumulator
  int32_t out_begin, out_count;
  int32_t out[kMaxSums];
  float* sums;  // planar [accumulators, z, y, x]
  int64_t sums_begin[3], sums_shape[3];
};
void Blend(const BlendTask& task, Stream stream);

// As PostOp::Kind.
enum class PostKind : uint8_t { kClamp, kSigmoid, kSoftmax, kArgmax, kThreshold, kScale, kLabels };
struct PostStep {
  PostKind kind;
  double a, b;
};

// A region of planar sums -> stored samples, as Finalizer::FromSums.
struct FinalizeTask {
  const float* sums;
  int64_t sums_begin[3], sums_shape[3];
  int64_t begin[3], shape[3];  // the region
  int32_t colours, alphas;
  int32_t accumulator[kMaxSums];  // colours, then alphas: channel of the sums
  int32_t posts;
  PostStep post[kMaxPost];
  const double* labels;  // of kLabels
  int32_t label_count;
  float range_lo, range_hi;  // alpha is clamped to it
  QuantiseTerms colour_terms, alpha_terms;
  DType dtype;
  int32_t out_channels;
  void* out;          // interleaved, dense
  int32_t* overflow;  // set to 1 if a finite result does not fit f16
};
void Finalize(const FinalizeTask& task, Stream stream);

// A region of planar sums -> f32 [z, y, x, accumulators] dense: what a seam hands on.
void Interleave(const float* sums, const int64_t sums_begin[3], const int64_t sums_shape[3],
                int32_t accumulators, const int64_t begin[3], const int64_t shape[3], float* out,
                Stream stream);

}  // namespace tilery::cuda
