#include "io/vdb_pack.h"

#include <blosc.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "io/error.h"

namespace tilery {
namespace {

void Append(std::vector<std::byte>* to, std::span<const std::byte> bytes) {
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

// A packed array has its size before it; one that would not become smaller has the negative of its
// size, and is not packed.
void VdbAppendPacked(uint32_t packing, size_t number_bytes, std::span<const std::byte> bytes,
                     std::vector<std::byte>* to) {
  if ((packing & (VdbPacking::kZip | VdbPacking::kBlosc)) == 0) return Append(to, bytes);
  std::vector<std::byte> packed;
  if (packing & VdbPacking::kBlosc) {
    constexpr int kLevel = 9, kThreads = 1;
    packed.resize(bytes.size() + BLOSC_MAX_OVERHEAD);
    const int size = blosc_compress_ctx(kLevel, BLOSC_SHUFFLE, number_bytes, bytes.size(),
                                        bytes.data(), packed.data(), packed.size(),
                                        BLOSC_LZ4_COMPNAME, bytes.size(), kThreads);
    packed.resize(static_cast<size_t>(std::max(size, 0)));
  } else {
    auto size = compressBound(static_cast<uLong>(bytes.size()));
    packed.resize(size);
    if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                  reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()),
                  Z_DEFAULT_COMPRESSION) != Z_OK)
      throw Error(Fault::kTransient, "zlib has no memory");
    packed.resize(size);
  }
  const bool smaller = !packed.empty() && packed.size() < bytes.size();
  const int64_t size =
      smaller ? static_cast<int64_t>(packed.size()) : -static_cast<int64_t>(bytes.size());
  Append(to, std::as_bytes(std::span(&size, 1)));
  Append(to, smaller ? std::span<const std::byte>(packed) : bytes);
}

bool VdbUnpack(uint32_t packing, std::span<const std::byte> packed, std::span<std::byte> into) {
  if (into.empty()) return true;  // no value is active: what stands there packs nothing
  if (packing & VdbPacking::kBlosc) {
    size_t length = 0;
    return blosc_cbuffer_validate(packed.data(), packed.size(), &length) == 0 &&
           length == into.size() &&
           blosc_decompress_ctx(packed.data(), into.data(), into.size(), 1) ==
               static_cast<int>(into.size());
  }
  auto length = static_cast<uLongf>(into.size());
  return uncompress(reinterpret_cast<Bytef*>(into.data()), &length,
                    reinterpret_cast<const Bytef*>(packed.data()),
                    static_cast<uLong>(packed.size())) == Z_OK &&
         length == into.size();
}

VdbArrays::VdbArrays(const VdbGrid& grid, const std::string& background)
    : numbers_(VdbNumbersOf(grid.type).value()),
      half_(grid.half),
      packing_(grid.packing),
      background_(background) {}

VdbLeftOut VdbArrays::ReadLeftOut(VdbInput& in, VdbMask* second) {
  const auto kind = in.Number<uint8_t>();
  if (kind > static_cast<uint8_t>(VdbInactive::kStored))
    in.Fail("an array of the unknown kind " + std::to_string(kind));
  VdbLeftOut out{static_cast<VdbInactive>(kind), {}};
  const std::span<const std::byte> background = std::as_bytes(std::span(background_));
  out.others[1].assign(background.begin(), background.end());
  out.others[0] = out.inactive == VdbInactive::kBackground
                      ? out.others[1]
                      : VdbNegative(background, numbers_.dtype);
  for (size_t i = 0; i < out.stored_values(); ++i) in.Read(out.others[i]);
  if (out.has_mask()) in.Read(std::as_writable_bytes(second->words()));
  return out;
}

void VdbArrays::Read(VdbInput& in, const VdbMask& active, std::span<std::byte> values) {
  const size_t bytes = numbers_.bytes();
  VdbMask second(active.places());
  const VdbLeftOut out = ReadLeftOut(in, &second);
  if (StoresAll(out)) return Unpack(in, values);
  unpacked_.resize(static_cast<size_t>(active.CountOn()) * bytes);
  Unpack(in, unpacked_);
  size_t next = 0;
  for (int place = 0; place < active.places(); ++place) {
    std::byte* const into = &values[static_cast<size_t>(place) * bytes];
    if (active.on(place)) {
      std::memcpy(into, &unpacked_[next], bytes);
      next += bytes;
    } else {
      std::memcpy(into, out.others[second.on(place) ? 1 : 0].data(), bytes);
    }
  }
}

void VdbArrays::Skip(VdbInput& in, const VdbMask& active) {
  VdbMask second(active.places());
  const int count = StoresAll(ReadLeftOut(in, &second)) ? active.places() : active.CountOn();
  if (half_ && count == 0) return;
  const size_t number = half_ ? 2 : DTypeSize(numbers_.dtype);
  const size_t stored = static_cast<size_t>(count * numbers_.components) * number;
  const int64_t packed = PackedSize(in, stored);
  in.Skip(packed > 0 ? packed : static_cast<int64_t>(stored));
}

int64_t VdbArrays::PackedSize(VdbInput& in, size_t stored) const {
  if ((packing_ & (VdbPacking::kZip | VdbPacking::kBlosc)) == 0) return 0;
  const auto size = in.Number<int64_t>();
  if (size <= 0) {
    if (size != -static_cast<int64_t>(stored))
      in.Fail("an array of " + std::to_string(stored) + " bytes is said to have " +
              std::to_string(size));
    return 0;
  }
  // Neither grows what it packs by more than that.
  const auto most = static_cast<int64_t>(stored + stored / 8 + 4096);
  if (size > most || size > in.left())
    in.Fail("a packed array of " + std::to_string(size) + " bytes for " + std::to_string(stored));
  return size;
}

// Numbers, perhaps of 16 bits, perhaps packed.
void VdbArrays::Unpack(VdbInput& in, std::span<std::byte> into) {
  const size_t numbers = into.size() / DTypeSize(numbers_.dtype);
  if (half_ && numbers == 0) return;  // then not even a size is written
  std::vector<std::byte> halves(half_ ? numbers * 2 : 0);
  const std::span<std::byte> stored = half_ ? std::span(halves) : into;
  if (const int64_t size = PackedSize(in, stored.size()); size == 0) {
    in.Read(stored);
  } else {
    packed_.resize(static_cast<size_t>(size));
    in.Read(packed_);
    if (!VdbUnpack(packing_ & (VdbPacking::kZip | VdbPacking::kBlosc), packed_, stored))
      in.Fail("an array that can't be unpacked");
  }
  if (!half_) return;
  for (size_t i = 0; i < numbers; ++i) {
    uint16_t bits;
    std::memcpy(&bits, &halves[2 * i], sizeof bits);
    const float value = HalfToFloat(bits);
    if (numbers_.dtype == DType::kF32) {
      std::memcpy(&into[4 * i], &value, sizeof value);
    } else {
      const double wide = value;
      std::memcpy(&into[8 * i], &wide, sizeof wide);
    }
  }
}

}  // namespace tilery
