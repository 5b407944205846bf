// When a device is of no more use to this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/error.h"

namespace tilery {

enum class Loss : uint8_t {
  kDevice,  // it has failed; a fresh process may find it well
  kMemory,  // its memory ran out, although all that could be spared was given back
};

// Called on any thread, more than once if several meet the loss; need not return. `why`: complete
// in itself, for kMemory with the bytes asked and free.
using LossHandler = std::function<void(Loss, const std::string& why)>;

// A device's memory ran out. kTransient, or kModel where a model is loaded that does not fit what
// is free even at batch 1.
class OutOfDeviceMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace tilery
