// Sample types. Float16 is IEEE binary16; every multi-byte sample in memory is in host byte order
// (little-endian hosts only, checked at compile time).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tilery {

enum class DType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF16, kF32, kF64 };

size_t DTypeSize(DType type);               // bytes per sample
const char* DTypeName(DType type);          // "u8", "i16", "f32", ...
DType DTypeFromName(const std::string& n);  // throws Error(kUsage) naming all valid ones
bool IsInteger(DType type);
bool IsFloat(DType type);
double LowestOf(DType type);  // of integers: full range; of floats: most negative finite value
double HighestOf(DType type);

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);  // round to nearest even, overflow to infinity

}  // namespace tilery
