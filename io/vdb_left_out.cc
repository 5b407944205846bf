#include <algorithm>
#include <cstring>

#include "io/vdb_pack.h"

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

}  // namespace tilery
