// Leaves under the method vq as bytes: where their numbers lie, how many stages of codes they have,
// and the codes, each under a model of how likely it is beside its neighbours'.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "pipeline/codec/leaf_masks.h"
#include "pipeline/codec/range_coder.h"
#include "pipeline/codec/vq_nets.h"

namespace tilery {

// For the leaves of one block. Encoder and decoder have to be told of the same leaves in the same
// order. Not thread-safe.
class VqCodesModel {
 public:
  explicit VqCodesModel(size_t components, VqKernel kernel = FastestVqKernel())
      : kernel_(kernel), components_(components) {}
  void Encode(RangeEncoder* coder, size_t component, const LeafMask& mask, const VqLeaf& leaf);
  // From damaged bytes it may make any codes.
  VqLeaf Decode(RangeDecoder* coder, size_t component, const LeafMask& mask);

 private:
  struct Component {
    VqPlace last;
    AdaptiveNumber scale, offset;
    std::array<AdaptiveBit, kVqStages> more;  // stages
  };
  template <typename Code>
  void ForCodes(const LeafMask& mask, VqLeaf* leaf, const Code& code) const;

  const VqKernel kernel_;
  std::vector<Component> components_;
};

}  // namespace tilery
