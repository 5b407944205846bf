// The context model of the grid codec on an NVIDIA GPU: the bytes of
// pipeline/codec/context_coder.h, and what comes back from them. Blocks are coded side by side,
// each by one block of threads: the voxels of a wave at once, then its symbols one after the other.
//
// All pointers are device memory. Nothing is allocated and nothing waits; see
// pipeline/cuda/kernels.h for errors.
#pragma once

#include <cstdint>

#include "pipeline/codec/context_formulas.h"
#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

// `blocks` of leaves of 8^3 voxels; leaves of all blocks are numbered through.
struct ContextTask {
  const ContextTables* tables;
  const ContextWaves* waves;
  const ContextComponent* components;  // [count]
  int32_t count;                       // at most kContextComponents
  int32_t blocks;
  const int32_t* leaves;  // [blocks + 1] where each block's begin
  const int32_t* voxels;  // [blocks + 1] where each block's active voxels begin in `order`
  const uint8_t* places;  // [leaves] in their block
  const uint64_t* masks;  // [leaves][8]
  // Of block b: [count][its leaves][512], from leaves[b] * count * 512 on. Decoding fills those of
  // active voxels.
  int32_t* values;
  uint8_t* streams;       // of block b from begins[b] to begins[b + 1]
  const int64_t* begins;  // [blocks + 1]
  int64_t* sizes;         // [blocks] encoding: bytes of the streams
  int32_t* order;         // [active voxels] scratch
  uint32_t* symbols;      // [active voxels][count][kContextSymbolWords] scratch, for encoding only
  uint8_t* memory;        // ContextMemoryBytes(count) for each block
};
inline constexpr int kContextSymbolWords = 3;
int64_t ContextMemoryBytes(int components);
// A stream is never longer, for so many numbers.
inline constexpr int64_t ContextStreamBytes(int64_t numbers) { return 16 * numbers + 64; }

void EncodeContext(const ContextTask& task, Stream stream);
void DecodeContext(const ContextTask& task, Stream stream);

}  // namespace tilery::cuda
