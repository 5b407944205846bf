#include "pipeline/torch_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <stdexcept>
#include <string_view>

#include "io/error.h"

namespace tilery {
namespace {

// The name of the operator that a message says is missing; "" if it says nothing of the kind.
std::string UnknownOperator(const std::string& text) {
  // Of the interpreter's loader, and of those who call by name.
  for (const std::string_view words :
       {std::string_view("Unknown builtin op: "), std::string_view("Could not find schema for ")}) {
    const size_t at = text.find(words);
    if (at == std::string::npos) continue;
    const size_t begin = at + words.size();
    std::string name = text.substr(begin, text.find_first_of("\n ", begin) - begin);
    while (!name.empty() && (name.back() == '.' || name.back() == ',')) name.pop_back();
    return name;
  }
  return "";
}

}  // namespace

at::Tensor TheTensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTuple() && value.toTupleRef().elements().size() == 1 &&
      value.toTupleRef().elements()[0].isTensor()) {
    return value.toTupleRef().elements()[0].toTensor();
  }
  throw std::runtime_error("it returns " + value.tagKind() +
                           "; export a model whose forward() returns one tensor");
}

std::string LastLine(std::string text) {
  if (const std::string name = UnknownOperator(text); !name.empty()) {
    return "it uses the operator " + Printable(name) +
           ", which Torch does not know; name the shared library that defines it in "
           "model.libraries";
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t at = text.rfind('\n');
  return Printable(at == std::string::npos ? text : text.substr(at + 1));
}

std::string MessageOf(const std::exception& e) {
  const auto* torch = dynamic_cast<const c10::Error*>(&e);
  return torch != nullptr ? torch->what_without_backtrace() : e.what();
}

}  // namespace tilery
