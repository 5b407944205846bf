#include "pipeline/codec/vq_region.h"

#include <cstdlib>

#include "pipeline/codec/vq_codes.h"

namespace tilery {
namespace {

// All leaves of all blocks, component by component.
template <typename Use>
void ForLeaves(std::span<const BlockNumbers> blocks, const Use& use) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (size_t c = 0; c < blocks[b].values.size(); ++c) {
      for (size_t leaf = 0; leaf < blocks[b].places.size(); ++leaf) use(b, c, leaf);
    }
  }
}

RegionCoding ResidualCoding(const RegionCoding& coding) {
  RegionCoding residual = coding;
  residual.contexts.clear();
  residual.weights = coding.vq->residual;
  return residual;
}

void Limit(const RegionCoding& coding, BlockNumbers* block) {
  for (auto& component : block->values) {
    for (size_t leaf = 0; leaf < block->places.size(); ++leaf) {
      ForOn(block->masks[leaf], [&](size_t voxel) {
        int32_t& number = component[leaf][voxel];
        number = vq::Clamp(number, coding.vq->least, coding.vq->most);
      });
    }
  }
}

// Adds or takes away what comes back from codes, where leaves are active. False if a number is too
// large to be told then.
bool Shift(int sign, const BlockNumbers& by, BlockNumbers* block) {
  bool fits = true;
  for (size_t c = 0; c < block->values.size(); ++c) {
    for (size_t leaf = 0; leaf < block->places.size(); ++leaf) {
      ForOn(block->masks[leaf], [&](size_t voxel) {
        int32_t& number = block->values[c][leaf][voxel];
        const int64_t moved = int64_t{number} + sign * int64_t{by.values[c][leaf][voxel]};
        fits = fits && std::abs(moved) <= kLargestCodedValue;
        number = vq::Clamp(moved, -kLargestCodedValue, kLargestCodedValue);
      });
    }
  }
  return fits;
}

}  // namespace

std::vector<VqBlock> EncodeVq(std::span<const BlockNumbers> blocks, const RegionCoding& coding,
                              VqDevice& device) {
  std::vector<VqBlock> all(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    all[b].restored = BlockNumbers(blocks[b].values.size());
    for (size_t leaf = 0; leaf < blocks[b].places.size(); ++leaf)
      all[b].restored.Add(blocks[b].places[leaf], blocks[b].masks[leaf]);
  }
  std::vector<const LeafMask*> masks;
  std::vector<const BlockNumbers::Leaf*> numbers;
  std::vector<BlockNumbers::Leaf*> restored;
  ForLeaves(blocks, [&](size_t b, size_t c, size_t leaf) {
    masks.push_back(&blocks[b].masks[leaf]);
    numbers.push_back(&blocks[b].values[c][leaf]);
    restored.push_back(&all[b].restored.values[c][leaf]);
  });
  const std::vector<VqLeaf> leaves = device.Encode(masks, numbers, coding.vq->goal, restored);
  size_t next = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    RangeEncoder coder(&all[b].codes);
    VqCodesModel model(blocks[b].values.size());
    ForLeaves(blocks.subspan(b, 1), [&](size_t, size_t c, size_t leaf) {
      model.Encode(&coder, c, blocks[b].masks[leaf], leaves[next++]);
    });
    coder.Finish();
    Limit(coding, &all[b].restored);
    if (coding.bound == 0) continue;
    BlockNumbers residual = blocks[b];
    all[b].told = Shift(-1, all[b].restored, &residual);
    all[b].restored = blocks[b];
    if (all[b].told) all[b].residual = EncodeNumbers(residual, ResidualCoding(coding));
  }
  return all;
}

void DecodeVq(std::span<const std::span<const std::byte>> streams, const RegionCoding& coding,
              VqDevice& device, std::span<BlockNumbers> blocks) {
  const size_t each = coding.bound == 0 ? 1 : 2;
  std::vector<const LeafMask*> masks;
  std::vector<VqLeaf> leaves;
  std::vector<BlockNumbers::Leaf*> numbers;
  for (size_t b = 0; b < blocks.size(); ++b) {
    RangeDecoder coder(streams[b * each]);
    VqCodesModel model(blocks[b].values.size());
    ForLeaves(blocks.subspan(b, 1), [&](size_t, size_t c, size_t leaf) {
      masks.push_back(&blocks[b].masks[leaf]);
      leaves.push_back(model.Decode(&coder, c, blocks[b].masks[leaf]));
      numbers.push_back(&blocks[b].values[c][leaf]);
    });
  }
  device.Decode(masks, leaves, numbers);
  for (size_t b = 0; b < blocks.size(); ++b) {
    Limit(coding, &blocks[b]);
    if (each == 1) continue;
    BlockNumbers residual(blocks[b].values.size());
    for (size_t leaf = 0; leaf < blocks[b].places.size(); ++leaf)
      residual.Add(blocks[b].places[leaf], blocks[b].masks[leaf]);
    DecodeNumbers(streams[b * each + 1], ResidualCoding(coding), &residual);
    Shift(1, residual, &blocks[b]);
  }
}

}  // namespace tilery
