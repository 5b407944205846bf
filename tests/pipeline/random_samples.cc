#include "tests/pipeline/random_samples.h"

#include <cstring>
#include <limits>
#include <random>

namespace tilery::testing {

std::vector<std::byte> RandomSamples(DType dtype, int64_t count, bool holes, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<std::byte> bytes(count * DTypeSize(dtype));
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + i * DTypeSize(dtype);
    const double v =
        holes && i % 29 == 3 ? std::numeric_limits<double>::quiet_NaN() : uniform(random);
    const auto f = static_cast<float>(v);
    const uint16_t half = FloatToHalf(f);
    const uint64_t bits = random();
    if (dtype == DType::kF64) std::memcpy(at, &v, 8);
    if (dtype == DType::kF32) std::memcpy(at, &f, 4);
    if (dtype == DType::kF16) std::memcpy(at, &half, 2);
    if (IsInteger(dtype)) std::memcpy(at, &bits, DTypeSize(dtype));
  }
  return bytes;
}

}  // namespace tilery::testing
