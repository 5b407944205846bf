// The network of the context model, on CPUs. pipeline/codec/context_formulas.h has what goes in and
// what comes out; tools/train_codec.py makes the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pipeline/codec/context_formulas.h"

namespace tilery {

// The same on every machine: made in integers and in sums, products and quotients of doubles.
const ContextTables& ContextModel();
// XXH3-64 of the tables' bytes: files tell by it which model they were made with.
uint64_t ContextModelHash();

const ContextWaves& ContextOrder();

enum class ContextKernel { kPortable, kAvx2 };
ContextKernel FastestContextKernel();  // that this CPU has

// `inputs`: kContextInputs each; `outputs`: kContextOutputs each, in 1/256. The same bits for every
// kernel. Thread-safe.
void RunContextNetwork(std::span<const int8_t> inputs, std::span<int32_t> outputs,
                       ContextKernel kernel = FastestContextKernel());

}  // namespace tilery
