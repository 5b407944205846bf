// What models on the CPU and on GPUs do alike with Torch's values and messages. Names Torch's types
// without their headers.
#pragma once

#include <exception>
#include <string>

namespace at {
class Tensor;
}
namespace c10 {
struct IValue;
}

namespace tilery {

// The tensor that a model returned, alone or as the only entry of a tuple. std::runtime_error, in
// words for the model's author, if it is anything else.
at::Tensor TheTensor(const c10::IValue& value);

// The interpreter's messages are long traces that end in what the model said; that line is kept,
// printable. Where it is an operator that Torch does not know, the line says its name and the way
// out.
std::string LastLine(std::string text);

// An exception's message without Torch's backtrace of C++ frames.
std::string MessageOf(const std::exception& e);

}  // namespace tilery
