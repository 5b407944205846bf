// Shared libraries that bring operators of their own (TORCH_LIBRARY, Torch-TensorRT's runtime).
#pragma once

#include <filesystem>

namespace tilery {

// Loads one into this process for good, as torch.ops.load_library does in Python: its operators are
// known from then on. A second time does nothing. Error(kModel) naming file, the loader's message
// and the way out. A model that needs it must not be loaded before.
//
// A library that throws while it registers itself (an operator of that name is there already) can't
// be left by the exception, as the loader is on the way: the process ends with `exit_code` and the
// same words on standard error. By one thread at a time.
void LoadOperatorLibrary(const std::filesystem::path& library, int exit_code);

}  // namespace tilery
