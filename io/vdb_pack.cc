#include "io/vdb_pack.h"

#include <blosc.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "io/error.h"

namespace tilery {
namespace {

template <typename T>
void NegateEach(std::span<std::byte> value) {
  for (size_t at = 0; at < value.size(); at += sizeof(T)) {
    T number;
    std::memcpy(&number, &value[at], sizeof number);
    number = -number;
    std::memcpy(&value[at], &number, sizeof number);
  }
}

void Append(std::vector<std::byte>* to, std::span<const std::byte> bytes) {
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::byte> VdbNegative(std::span<const std::byte> value, DType dtype) {
  std::vector<std::byte> negative(value.begin(), value.end());
  dtype == DType::kF64 ? NegateEach<double>(negative) : NegateEach<float>(negative);
  return negative;
}

VdbLeftOut VdbLeaveOut(const VdbNumbers& numbers, std::span<const std::byte> background,
                       const VdbMask& active, const VdbMask& children,
                       std::span<const std::byte> values) {
  const size_t bytes = numbers.bytes();
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  // The first two different ones, by their bits: what reads them gives the bits back.
  std::vector<std::span<const std::byte>> found;
  for (int place = 0; place < active.places(); ++place) {
    if (active.on(place) || (children.places() > 0 && children.on(place))) continue;
    const auto value = values.subspan(static_cast<size_t>(place) * bytes, bytes);
    if (std::any_of(found.begin(), found.end(), [&](auto known) { return same(known, value); }))
      continue;
    if (found.size() == 2) return {};
    found.push_back(value);
  }
  const std::vector<std::byte> negative = VdbNegative(background, numbers.dtype);
  const auto of = [](std::span<const std::byte> value) {
    return std::vector<std::byte>(value.begin(), value.end());
  };
  VdbLeftOut out{VdbInactive::kBackground, {of(background), of(background)}};
  if (found.empty() || (found.size() == 1 && same(found[0], background))) return out;
  if (found.size() == 1) {
    out.others[0] = of(found[0]);
    out.inactive = same(found[0], negative) ? VdbInactive::kMinusBackground : VdbInactive::kOne;
    return out;
  }
  if (!same(found[0], background) && !same(found[1], background))
    return {VdbInactive::kTwo, {of(found[0]), of(found[1])}};
  out.others[0] = of(same(found[0], background) ? found[1] : found[0]);
  out.inactive =
      same(out.others[0], negative) ? VdbInactive::kSigns : VdbInactive::kOneOrBackground;
  return out;
}

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

}  // namespace tilery
