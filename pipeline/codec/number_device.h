// A device that codes whole numbers under the context model, many blocks at once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/codec/block_numbers.h"
#include "pipeline/codec/context_formulas.h"

namespace tilery {

// Thread-safe. The bytes and numbers are those of pipeline/codec/context_coder.h.
class NumberDevice {
 public:
  virtual ~NumberDevice() = default;
  // A stream for each block, of a grid with these components. Error(kTransient) where memory runs
  // out.
  virtual std::vector<std::vector<std::byte>> Encode(
      std::span<const BlockNumbers> blocks, std::span<const ContextComponent> components) = 0;
  // Fills the values of blocks whose leaves are told.
  virtual void Decode(std::span<const std::span<const std::byte>> streams,
                      std::span<const ContextComponent> components,
                      std::span<BlockNumbers> blocks) = 0;
};

}  // namespace tilery
