// The leaves of a region under the method vq.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/codec/block_numbers.h"
#include "pipeline/codec/value_coding.h"
#include "pipeline/codec/vq_nets.h"

namespace tilery {

// A block of leaves as codes, in bytes: two streams, the second of what the numbers are off by from
// what the codes stand for; none where there is no bound.
struct VqBlock {
  std::vector<std::byte> codes, residual;
  BlockNumbers restored;  // what comes back
  bool told = true;       // the residual is small enough to be told

  size_t bytes() const { return codes.size() + residual.size(); }
};

// In one batch. `coding` has its `vq` set.
std::vector<VqBlock> EncodeVq(std::span<const BlockNumbers> blocks, const RegionCoding& coding,
                              VqDevice& device);
// `streams`: of each block one, and one more behind it where there is a bound. Fills the values of
// blocks whose leaves are told; from damaged bytes it may make any numbers.
void DecodeVq(std::span<const std::span<const std::byte>> streams, const RegionCoding& coding,
              VqDevice& device, std::span<BlockNumbers> blocks);

}  // namespace tilery
