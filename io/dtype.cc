#include "io/dtype.h"

#include <array>
#include <bit>
#include <limits>

#include "io/error.h"

namespace tilery {
namespace {

static_assert(std::endian::native == std::endian::little, "Tilery needs a little-endian host");

struct Entry {
  const char* name;
  size_t size;
  bool integer;
  double lowest;
  double highest;
};

template <typename T>
constexpr Entry Of(const char* name) {
  using Limits = std::numeric_limits<T>;
  return {name, sizeof(T), Limits::is_integer, static_cast<double>(Limits::lowest()),
          static_cast<double>(Limits::max())};
}

// In the order of the enumeration.
constexpr std::array<Entry, 9> kTypes = {
    Of<uint8_t>("u8"),
    Of<int8_t>("i8"),
    Of<uint16_t>("u16"),
    Of<int16_t>("i16"),
    Of<uint32_t>("u32"),
    Of<int32_t>("i32"),
    {"f16", 2, false, -65504.0, 65504.0},
    Of<float>("f32"),
    Of<double>("f64"),
};

const Entry& EntryOf(DType type) {
  const auto index = static_cast<size_t>(type);
  if (index >= kTypes.size()) {
    throw Error(Fault::kInternal, "sample type number " + std::to_string(index) + " is unknown");
  }
  return kTypes[index];
}

}  // namespace

size_t DTypeSize(DType type) { return EntryOf(type).size; }
const char* DTypeName(DType type) { return EntryOf(type).name; }
bool IsInteger(DType type) { return EntryOf(type).integer; }
bool IsFloat(DType type) { return !EntryOf(type).integer; }
double LowestOf(DType type) { return EntryOf(type).lowest; }
double HighestOf(DType type) { return EntryOf(type).highest; }

DType DTypeFromName(const std::string& n) {
  std::string names;
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (n == kTypes[i].name) return static_cast<DType>(i);
    names += (i == 0 ? "" : ", ") + std::string(kTypes[i].name);
  }
  throw Error(Fault::kUsage,
              "sample type \"" + Printable(n, 40) + "\" is unknown; valid are " + names);
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t rebiased = exponent == 31 ? 255u : exponent + (127u - 15u);
  return std::bit_cast<float>(sign | (rebiased << 23) | (mantissa << 13));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN stays NaN, with as much of its payload as fits
    const uint32_t payload = (magnitude >> 13) & 0x3FFu;
    return static_cast<uint16_t>(sign | 0x7C00u | (payload != 0 ? payload : 0x200u));
  }
  // 65520 lies half-way between the largest half and the next power of two: the tie goes up.
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;
  if (magnitude < 0x38800000u) {
    // Below 2^-14 halves are multiples of 2^-24. Adding 0.5 makes the float adder round at exactly
    // that place, to even; what remains in the low bits is the half's mantissa.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xFFFu + odd;  // a carry into the exponent is right
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace tilery
