// The end of the small programs that tests call: errors go to standard error, and the exit code
// says whose they are: 3 for inputs, 4 for outputs, 1 otherwise.
#pragma once

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "io/error.h"

namespace tilery {

inline int ToolMain(int argc, char** argv, int (*run)(const std::vector<std::string>& args)) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return error.fault() == Fault::kInput ? 3 : error.fault() == Fault::kOutput ? 4 : 1;
  } catch (const std::exception& error) {
    std::cerr << "exception: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace tilery
