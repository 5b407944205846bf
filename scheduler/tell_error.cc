// TellError of scheduler/commands.h.
#include <exception>
#include <iostream>

#include "io/error.h"
#include "scheduler/commands.h"

namespace tilery {

int TellError() {
  try {
    throw;
  } catch (const Error& e) {
    std::cerr << "tilery: " << e.what() << std::endl;
    switch (e.fault()) {
      case Fault::kUsage:
      case Fault::kInput:
      case Fault::kOutput:  // a place that can't be written: another must be named
        return kExitUsage;
      default:
        return kExitInternal;
    }
  } catch (const std::exception& e) {
    std::cerr << "tilery: internal error: " << Printable(e.what()) << std::endl;
    return kExitInternal;
  }
}

}  // namespace tilery
