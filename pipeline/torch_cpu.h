// What all models on the CPU share of Torch in this process: memory, threads, and how their errors
// are told.
#pragma once

#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "io/error.h"
#include "pipeline/model.h"
#include "pipeline/torch_values.h"

namespace tilery {

// Before the first tensor of the process: blocks that come and go with every batch are kept. Later
// calls do nothing.
void UseTensorHeap();
// Gives back what it keeps, where no model needs it any more.
void TrimTensorHeap();

// Intra-op threads are a setting of each thread: one per lane, since their number changes bytes.
// Each thread calls it before it runs a model.
void UseOneThread();

// A want of memory must never choose the form of a model: another worker would choose differently,
// and its bytes would differ.
bool IsOutOfHostMemory(const std::exception& e);

// A model's answer as the engine takes it: dense f32 that shares no memory with the input, since
// whoever keeps it must not see the next batch through it. std::runtime_error if it is no tensor of
// real numbers.
at::Tensor AsFloats(at::Tensor answer, const at::Tensor& input);
ModelOutput Kept(at::Tensor floats);

// Error(kTransient) if it is memory that `what` speaks of, else Error(kModel): the model `doing`
// ("failed") and why.
[[noreturn]] void ThrowModelError(const std::filesystem::path& model, const std::string& doing,
                                  const std::exception& e);

template <typename Body>
auto GuardedModel(const std::filesystem::path& model, const std::string& doing, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    ThrowModelError(model, doing, e);
  }
}

}  // namespace tilery
