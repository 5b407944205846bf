#include "pipeline/torch_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <stdexcept>

#include "io/error.h"

namespace tilery {

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
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t at = text.rfind('\n');
  return Printable(at == std::string::npos ? text : text.substr(at + 1));
}

std::string MessageOf(const std::exception& e) {
  const auto* torch = dynamic_cast<const c10::Error*>(&e);
  return torch != nullptr ? torch->what_without_backtrace() : e.what();
}

}  // namespace tilery
