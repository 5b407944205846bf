// The nets of the method vq: from the whole numbers of leaves to codes, and back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/codec/block_numbers.h"
#include "pipeline/codec/vq_model.h"

namespace tilery {

// A leaf, one component of it, as codes. What it stands for is told by the mask as well.
struct VqLeaf {
  VqPlace place{};
  uint8_t stages = 0;  // of residual codes; 0: all numbers are the offset
  // [stage][cell]; of a cell without active voxels 0, which means nothing.
  std::array<std::array<uint8_t, kVqCells>, kVqStages> codes{};
};

// When a leaf has codes enough.
struct VqGoal {
  // Of the error of its active numbers, mean square.
  double square = 0;
  int most_stages = kVqStages;
};

// Codes leaves, many at once. Thread-safe. The same on every device.
class VqDevice {
 public:
  virtual ~VqDevice() = default;
  // As few stages as reach the goal, else the most. `restored`: what Decode will make of them.
  // Masks have active voxels; numbers are at most kLargestCodedValue in size and 0 elsewhere.
  // Error(kTransient) where memory runs out.
  virtual std::vector<VqLeaf> Encode(std::span<const LeafMask* const> masks,
                                     std::span<const BlockNumbers::Leaf* const> numbers,
                                     const VqGoal& goal,
                                     std::span<BlockNumbers::Leaf* const> restored) = 0;
  // 0 where the mask is off.
  virtual void Decode(std::span<const LeafMask* const> masks, std::span<const VqLeaf> leaves,
                      std::span<BlockNumbers::Leaf* const> numbers) = 0;
};

enum class VqKernel : uint8_t { kPortable, kAvx2 };
VqKernel FastestVqKernel();

// On the thread that calls.
class VqCpu final : public VqDevice {
 public:
  explicit VqCpu(VqKernel kernel = FastestVqKernel()) : kernel_(kernel) {}
  std::vector<VqLeaf> Encode(std::span<const LeafMask* const> masks,
                             std::span<const BlockNumbers::Leaf* const> numbers, const VqGoal& goal,
                             std::span<BlockNumbers::Leaf* const> restored) override;
  void Decode(std::span<const LeafMask* const> masks, std::span<const VqLeaf> leaves,
              std::span<BlockNumbers::Leaf* const> numbers) override;

 private:
  const VqKernel kernel_;
};

}  // namespace tilery
