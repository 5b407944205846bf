// An operator library, as a user of `model.libraries` has one.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace {

at::Tensor Times(const at::Tensor& x) { return x.mul(TILERY_TEST_FACTOR); }

}  // namespace

TORCH_LIBRARY(tilery_test, library) { library.def("times(Tensor x) -> Tensor", &Times); }
