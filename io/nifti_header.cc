#include "io/nifti_header.h"

#include <algorithm>
#include <cstring>

#include "io/byte_order.h"
#include "io/error.h"

namespace tilery {
namespace {

enum class Type : char { kByte, kI16, kI32, kI64, kF32, kF64 };

// Where a field lies in both versions.
struct Place {
  Type type;
  int offset;
};
struct Field {
  Nifti name;
  int count;
  Place in[2];  // version 1, version 2
};
using enum Type;
constexpr Field kFields[] = {
    {Nifti::kDim, 8, {{kI16, 40}, {kI64, 16}}},
    {Nifti::kPixdim, 8, {{kF32, 76}, {kF64, 104}}},
    {Nifti::kDatatype, 1, {{kI16, 70}, {kI16, 12}}},
    {Nifti::kBitpix, 1, {{kI16, 72}, {kI16, 14}}},
    {Nifti::kVoxOffset, 1, {{kF32, 108}, {kI64, 168}}},
    {Nifti::kSlope, 1, {{kF32, 112}, {kF64, 176}}},
    {Nifti::kInter, 1, {{kF32, 116}, {kF64, 184}}},
    {Nifti::kCalMax, 1, {{kF32, 124}, {kF64, 192}}},
    {Nifti::kCalMin, 1, {{kF32, 128}, {kF64, 200}}},
    {Nifti::kQformCode, 1, {{kI16, 252}, {kI32, 344}}},
    {Nifti::kSformCode, 1, {{kI16, 254}, {kI32, 348}}},
    {Nifti::kQuatern, 3, {{kF32, 256}, {kF64, 352}}},
    {Nifti::kQoffset, 3, {{kF32, 268}, {kF64, 376}}},
    {Nifti::kSrow, 12, {{kF32, 280}, {kF64, 400}}},
    {Nifti::kSliceStart, 1, {{kI16, 74}, {kI64, 224}}},
    {Nifti::kSliceEnd, 1, {{kI16, 120}, {kI64, 232}}},
    {Nifti::kSliceCode, 1, {{kByte, 122}, {kI32, 496}}},
    {Nifti::kSliceDuration, 1, {{kF32, 132}, {kF64, 208}}},
    {Nifti::kToffset, 1, {{kF32, 136}, {kF64, 216}}},
    {Nifti::kUnits, 1, {{kByte, 123}, {kI32, 500}}},
    {Nifti::kIntentCode, 1, {{kI16, 68}, {kI32, 504}}},
    {Nifti::kIntentP, 3, {{kF32, 56}, {kF64, 80}}},
    {Nifti::kDimInfo, 1, {{kByte, 39}, {kByte, 524}}},
};

struct Text {
  size_t bytes;
  size_t offset[2];
};
constexpr Text kTexts[] = {{80, {148, 240}}, {24, {228, 320}}, {16, {328, 508}}};

// Numbers that have no name above but do have a byte order: sizeof_hdr, and in version 1 also
// extents, session_error, glmax and glmin.
constexpr Place kNameless1[] = {{kI32, 0}, {kI32, 32}, {kI16, 36}, {kI32, 140}, {kI32, 144}};
constexpr Place kNameless2[] = {{kI32, 0}};

constexpr char kMagic1[] = "n+1";
constexpr char kPair1[] = "ni1";
constexpr char kMagic2[] = "n+2\0\r\n\x1A\n";
constexpr char kPair2[] = "ni2\0\r\n\x1A\n";

int Size(Type type) {
  switch (type) {
    case kByte:
      return 1;
    case kI16:
      return 2;
    case kI32:
    case kF32:
      return 4;
    case kI64:
    case kF64:
      return 8;
  }
  return 0;
}

const Field& FieldOf(Nifti name) {
  return *std::find_if(std::begin(kFields), std::end(kFields),
                       [name](const Field& field) { return field.name == name; });
}

}  // namespace

NiftiHeader::Kind NiftiHeader::Recognise(std::span<const std::byte> head) {
  if (head.size() < 4) return {};
  const auto has = [head](size_t at, const char* magic, size_t size) {
    return head.size() < at + size || std::memcmp(head.data() + at, magic, size) == 0;
  };
  for (const bool big : {false, true}) {
    const auto size = Load<uint32_t>(head.data(), big);
    if (size == kBytes1 && has(344, kMagic1, 4)) return {1, big, false};
    if (size == kBytes1 && has(344, kPair1, 4)) return {1, big, true};
    if (size == kBytes2 && has(4, kMagic2, 8)) return {2, big, false};
    if (size == kBytes2 && has(4, kPair2, 8)) return {2, big, true};
  }
  return {};
}

NiftiHeader::NiftiHeader() : bytes_(kBytes1, '\0') {
  Store<int32_t>(bytes_.data(), kBytes1, false);
  std::memcpy(bytes_.data() + 344, kMagic1, 4);
  bytes_[38] = 'r';  // "regular", which ANALYZE readers look for
  for (int axis = 0; axis < 8; ++axis) {
    Set(Nifti::kDim, axis, axis == 0 ? 3 : 1);
    Set(Nifti::kPixdim, axis, 1);
  }
  Set(Nifti::kDatatype, 0, 2);
  Set(Nifti::kBitpix, 0, 8);
  Set(Nifti::kSlope, 0, 1);
}

NiftiHeader::NiftiHeader(std::string bytes) : bytes_(std::move(bytes)) {
  if (bytes_.size() != kBytes1 && bytes_.size() != kBytes2) {
    throw Error(Fault::kInternal, "a NIfTI header of " + std::to_string(bytes_.size()) + " bytes");
  }
}

NiftiHeader NiftiHeader::FromFile(std::string bytes, bool big_endian) {
  NiftiHeader header(std::move(bytes));
  if (!big_endian) return header;
  const auto swap = [&](const Place& place, int count) {
    SwapSamples(reinterpret_cast<std::byte*>(header.bytes_.data()) + place.offset,
                static_cast<size_t>(count), static_cast<size_t>(Size(place.type)));
  };
  for (const Field& field : kFields) swap(field.in[header.version() - 1], field.count);
  if (header.version() == 1) {
    for (const Place& place : kNameless1) swap(place, 1);
  } else {
    for (const Place& place : kNameless2) swap(place, 1);
  }
  return header;
}

double NiftiHeader::Get(Nifti name, int index) const {
  const Place& place = FieldOf(name).in[version() - 1];
  const char* at = bytes_.data() + place.offset + index * Size(place.type);
  switch (place.type) {
    case kByte:
      return static_cast<unsigned char>(*at);
    case kI16:
      return LoadLittle<int16_t>(at);
    case kI32:
      return LoadLittle<int32_t>(at);
    case kI64:
      return static_cast<double>(LoadLittle<int64_t>(at));
    case kF32:
      return LoadLittle<float>(at);
    case kF64:
      return LoadLittle<double>(at);
  }
  return 0;
}

void NiftiHeader::Set(Nifti name, int index, double value) {
  const Place& place = FieldOf(name).in[version() - 1];
  char* at = bytes_.data() + place.offset + index * Size(place.type);
  switch (place.type) {
    case kByte:
      *at = static_cast<char>(static_cast<unsigned char>(value));
      break;
    case kI16:
      Store(at, static_cast<int16_t>(value), false);
      break;
    case kI32:
      Store(at, static_cast<int32_t>(value), false);
      break;
    case kI64:
      Store(at, static_cast<int64_t>(value), false);
      break;
    case kF32:
      Store(at, static_cast<float>(value), false);
      break;
    case kF64:
      Store(at, value, false);
      break;
  }
}

NiftiHeader NiftiHeader::AsVersion2() const {
  if (version() == 2) return *this;
  std::string bytes(kBytes2, '\0');
  Store<int32_t>(bytes.data(), kBytes2, false);
  std::memcpy(bytes.data() + 4, kMagic2, 8);
  for (const Text& text : kTexts) {
    std::memcpy(bytes.data() + text.offset[1], bytes_.data() + text.offset[0], text.bytes);
  }
  NiftiHeader out(std::move(bytes));
  for (const Field& field : kFields) {
    for (int i = 0; i < field.count; ++i) out.Set(field.name, i, Get(field.name, i));
  }
  return out;
}

}  // namespace tilery
