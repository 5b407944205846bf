#include "pipeline/operator_libraries.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "io/error.h"
#include "pipeline/model.h"
#include "pipeline/torch_values.h"

namespace tilery {
namespace {

std::string Refusal(const std::filesystem::path& library, const std::string& why) {
  return "model.libraries: " + Printable(library.native()) + " can't be loaded: " + Printable(why) +
         "; it must be a shared library built for Torch " + TorchVersion() +
         " and this system, and what it needs in turn must be found (ldd shows it; name it before "
         "in model.libraries)";
}

// Of the library that is being loaded, for the handler, which takes no arguments.
const std::filesystem::path* loading = nullptr;
int exit_code_of_loading = 1;

[[noreturn]] void EndInWords() {
  std::string why = "it ended the process";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    why = LastLine(MessageOf(e));
  } catch (...) {
    why = "it threw something that is no exception";
  }
  std::fprintf(stderr, "%s\n", Refusal(*loading, why).c_str());
  std::fflush(stderr);
  _exit(exit_code_of_loading);
}

}  // namespace

void LoadOperatorLibrary(const std::filesystem::path& library, int exit_code) {
  loading = &library;
  exit_code_of_loading = exit_code;
  const std::terminate_handler before = std::set_terminate(&EndInWords);
  // Global, so that libraries after it find its symbols. Never closed: Torch keeps what it
  // registered.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  std::set_terminate(before);
  if (handle != nullptr) return;
  const char* const why = dlerror();
  throw Error(Fault::kModel, Refusal(library, why != nullptr ? why : "the loader says nothing"));
}

}  // namespace tilery
