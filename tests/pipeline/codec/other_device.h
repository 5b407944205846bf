// A device beside the one that codes numbers by default: a test is built once for each.
#pragma once

#include <memory>

#include "pipeline/codec/number_device.h"
#include "pipeline/codec/vq_nets.h"

namespace tilery {

std::unique_ptr<NumberDevice> OtherDevice();  // null if this machine has none
std::unique_ptr<VqDevice> OtherVqDevice();

}  // namespace tilery
