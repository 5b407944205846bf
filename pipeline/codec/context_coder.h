// Codes the whole numbers of blocks under the context model, on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/codec/block_numbers.h"
#include "pipeline/codec/context_network.h"
#include "pipeline/codec/range_coder.h"

namespace tilery {

class ContextMemory;

// Finds what a grid's components are best coded by: least squares of predictions, and ranges. Not
// thread-safe.
class ContextFit {
 public:
  // `voxels` that will be added, roughly: of many, only some are looked at.
  ContextFit(size_t components, int64_t voxels);
  ~ContextFit();
  void Add(const BlockNumbers& block);
  std::vector<ContextComponent> Components() const;

 private:
  struct Sums;
  const int64_t every_;
  int64_t count_ = 0;
  std::unique_ptr<ContextMemory> memory_;
  std::vector<Sums> sums_;
};

// Not thread-safe; `components` outlives it. At most kContextComponents.
class ContextCoder {
 public:
  explicit ContextCoder(std::span<const ContextComponent> components,
                        ContextKernel kernel = FastestContextKernel());
  ~ContextCoder();
  void Encode(RangeEncoder* coder, const BlockNumbers& block);
  // Fills the values of a block whose leaves are told. From damaged bytes it may make any numbers,
  // none larger than kLargestCodedValue.
  void Decode(RangeDecoder* coder, BlockNumbers* block);

  // What the network is trained on: its inputs, and where the value lies: its distance from the
  // prediction in sixteenths, and the unit, 2^shift steps.
  using Sample =
      std::function<void(std::span<const int8_t, kContextInputs> inputs, int shift, int32_t error)>;
  void Samples(const BlockNumbers& block, const Sample& sample);

 private:
  // Calls code(voxel's place in the list, distribution) for all voxels of a component whose values
  // are known.
  template <typename Code>
  void ForKnown(size_t component, const Code& code);

  const std::span<const ContextComponent> components_;
  const ContextKernel kernel_;
  std::unique_ptr<ContextMemory> memory_;
};

}  // namespace tilery
