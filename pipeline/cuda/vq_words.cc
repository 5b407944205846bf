// The tables of the method vq as GPUs read them.
#include "pipeline/cuda/vq_kernels.h"

namespace tilery::cuda {
namespace {

template <int kIn, int kOut>
void Pack(const int8_t (&from)[kOut][kIn], int32_t (&to)[kIn / 4][kOut]) {
  for (int out = 0; out < kOut; ++out) {
    for (int word = 0; word < kIn / 4; ++word) {
      uint32_t four = 0;
      for (int i = 0; i < 4; ++i)
        four |= static_cast<uint32_t>(static_cast<uint8_t>(from[out][4 * word + i])) << (8 * i);
      to[word][out] = static_cast<int32_t>(four);
    }
  }
}
template <int kCount>
void Copy(const int32_t (&from)[kCount], int32_t (&to)[kCount]) {
  for (int i = 0; i < kCount; ++i) to[i] = from[i];
}

}  // namespace

void FillVqWords(const VqTables& tables, VqWords* words) {
  Pack(tables.encoder_first, words->encoder_first);
  Pack(tables.encoder_second, words->encoder_second);
  Pack(tables.encoder_last, words->encoder_last);
  Pack(tables.decoder_first, words->decoder_first);
  Pack(tables.decoder_second, words->decoder_second);
  Pack(tables.decoder_last, words->decoder_last);
  for (int stage = 0; stage < kVqStages; ++stage) {
    Pack(tables.codebooks[stage], words->codes[stage]);
    for (int code = 0; code < kVqCodes; ++code) {
      int32_t square = 0;
      for (const int8_t number : tables.codebooks[stage][code]) square += number * number;
      words->squares[stage][code] = square;
    }
  }
  Copy(tables.encoder_first_bias, words->encoder_first_bias);
  Copy(tables.encoder_second_bias, words->encoder_second_bias);
  Copy(tables.encoder_last_bias, words->encoder_last_bias);
  Copy(tables.decoder_first_bias, words->decoder_first_bias);
  Copy(tables.decoder_second_bias, words->decoder_second_bias);
  Copy(tables.decoder_last_bias, words->decoder_last_bias);
}

}  // namespace tilery::cuda
