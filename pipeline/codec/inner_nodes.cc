#include "pipeline/codec/inner_nodes.h"

#include <algorithm>

namespace tilery {
namespace {

// One face for both directions: each call says what is so, or finds it out.
struct Writing {
  RangeEncoder* coder;
  static constexpr bool kReads = false;
  bool Bit(AdaptiveBit* model, bool bit) {
    coder->Encode(model, bit);
    return bit;
  }
  void Byte(std::byte* byte) { coder->EncodeRaw(static_cast<uint32_t>(*byte), 8); }
};
struct Reading {
  RangeDecoder* coder;
  static constexpr bool kReads = true;
  bool Bit(AdaptiveBit* model, bool) { return coder->Decode(model); }
  void Byte(std::byte* byte) { *byte = static_cast<std::byte>(coder->DecodeRaw(8)); }
};

}  // namespace

InnerNodeModel::InnerNodeModel(VdbLevel level, const std::string& background)
    : level_(level),
      background_(reinterpret_cast<const std::byte*>(background.data()),
                  reinterpret_cast<const std::byte*>(background.data()) + background.size()),
      other_(background_) {}

template <typename Coder>
void InnerNodeModel::Run(Coder& coder, VdbNode* node) {
  const int bits = level_ == VdbLevel::kUpper ? 5 : 4, side = 1 << bits, places = VdbPlaces(level_);
  const size_t size = background_.size();
  const auto neighbours = [&](const VdbMask& mask, int place) {
    const int z = place & (side - 1), y = place >> bits & (side - 1), x = place >> 2 * bits;
    return static_cast<size_t>((z > 0 && mask.on(place - 1) ? 1 : 0) |
                               (y > 0 && mask.on(place - side) ? 2 : 0) |
                               (x > 0 && mask.on(place - side * side) ? 4 : 0));
  };
  if (Coder::kReads) {
    node->level = level_;
    node->children = node->active = VdbMask(places);
    node->values.assign(static_cast<size_t>(places) * size, std::byte{0});
  }
  // What the last inactive and the last active tile were.
  std::array<size_t, 2> was_background = {1, 1};
  for (int place = 0; place < places; ++place) {
    const bool child =
        coder.Bit(&child_[neighbours(node->children, place)], node->children.on(place));
    if (child) {
      node->children.SetOn(place);
      continue;
    }
    const bool active =
        coder.Bit(&active_[neighbours(node->active, place)], node->active.on(place));
    if (active) node->active.SetOn(place);
    const auto value = std::span(node->values).subspan(static_cast<size_t>(place) * size, size);
    const auto is = [&](const std::vector<std::byte>& known) {
      return std::equal(value.begin(), value.end(), known.begin());
    };
    auto& models = is_background_[active ? 1 : 0];
    const bool background = coder.Bit(&models[was_background[active ? 1 : 0]], is(background_));
    was_background[active ? 1 : 0] = background ? 1 : 0;
    if (background) {
      std::copy(background_.begin(), background_.end(), value.begin());
    } else if (coder.Bit(&is_other_[active ? 1 : 0], is(other_))) {
      std::copy(other_.begin(), other_.end(), value.begin());
    } else {
      for (std::byte& byte : value) coder.Byte(&byte);
      other_.assign(value.begin(), value.end());
    }
  }
}

void InnerNodeModel::Encode(RangeEncoder* coder, const VdbNode& node) {
  VdbNode same = node;
  Writing writing{coder};
  Run(writing, &same);
}

void InnerNodeModel::Decode(RangeDecoder* coder, VdbNode* node) {
  Reading reading{coder};
  Run(reading, node);
}

}  // namespace tilery
