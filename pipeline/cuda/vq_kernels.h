// The nets of the method vq on an NVIDIA GPU: what pipeline/codec/vq_nets.h says, bit by bit.
//
// All pointers are device memory. Nothing is allocated and nothing waits; see
// pipeline/cuda/kernels.h for errors.
#pragma once

#include <cstdint>

#include "pipeline/codec/vq_formulas.h"
#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

// Weights of four inputs side by side, as dot products of GPUs take them: [inputs / 4][outputs].
struct VqWords {
  int32_t encoder_first[kVqPatch / 4][kVqHidden];
  int32_t encoder_second[kVqAround / 4][kVqSecond];
  int32_t encoder_last[kVqSecond / 4][kVqWidth];
  int32_t decoder_first[kVqCodesAround / 4][kVqHidden];
  int32_t decoder_second[kVqAround / 4][kVqSecond];
  int32_t decoder_last[kVqSecond / 4][8];
  int32_t codes[kVqStages][kVqWidth / 4][kVqCodes];
  int32_t squares[kVqStages][kVqCodes];  // of the codes' vectors
  int32_t encoder_first_bias[kVqHidden], encoder_second_bias[kVqSecond],
      encoder_last_bias[kVqWidth];
  int32_t decoder_first_bias[kVqHidden], decoder_second_bias[kVqSecond], decoder_last_bias[8];
};
// Host memory.
void FillVqWords(const VqTables& tables, VqWords* words);

struct VqTask {
  const VqWords* words;
  int32_t leaves;
  const uint64_t* masks;  // [leaves][8]
  // [leaves][512]; encoding: what is coded, 0 where the mask is off; decoding: filled.
  int32_t* numbers;
  int32_t* restored;  // [leaves][512] encoding: filled
  int32_t* offsets;   // [leaves] VqPlace; so are
  uint8_t* scales;    // [leaves]
  uint8_t* stages;    // [leaves]
  uint8_t* codes;     // [leaves][kVqStages][kVqCells]
  double goal;        // VqGoal
  int32_t most_stages;
};

void EncodeVqLeaves(const VqTask& task, Stream stream);
void DecodeVqLeaves(const VqTask& task, Stream stream);

}  // namespace tilery::cuda
