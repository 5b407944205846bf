// Which slots of a batch are used.
//
// What a model makes of a tile may depend, in its last bits, on the slot that the tile has in a
// batch: convolutions of cuDNN may sum up in another order in one slot than in the others. Tiles
// get into slots as they come, so only slots that give equal bytes may be used; the others hold
// copies, and what is made of these is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilery {

class BatchSlots {
 public:
  // "all", or ascending ranges without overlap, both ends included: "0-6,8-15", "0".
  // Error(kUsage) for anything else, and if a slot is not below `batch`.
  BatchSlots(const std::string& text, int64_t batch);
  // `used`: of each slot of a batch; at least one is. The text that gives it.
  static std::string Text(const std::vector<bool>& used);

  int64_t size() const { return static_cast<int64_t>(used_.size()); }
  int64_t operator[](int64_t i) const { return used_[static_cast<size_t>(i)]; }  // ascending
  const std::vector<int64_t>& unused() const { return unused_; }
  // Whether the `i`th comes right before the next one.
  bool Follows(int64_t i) const { return (*this)[i] + 1 == (*this)[i + 1]; }

 private:
  std::vector<int64_t> used_, unused_;
};

// What a model made of batches that had the same tile in every slot, from numbers that are equal
// for equal bytes: one list per such batch, a number for each slot. Used are the most slots that
// gave the same in all of them; of several such sets, that with the lowest slot.
std::vector<bool> SlotsThatAgree(const std::vector<std::vector<uint64_t>>& batches);

}  // namespace tilery
