// Who owns what codes grids on a device.
#pragma once

#include "pipeline/codec/region.h"

namespace tilery {

// Outlives those whom it gives its devices. Thread-safe.
class CodecDevices {
 public:
  virtual ~CodecDevices() = default;
  virtual RegionDevices devices() = 0;
};

}  // namespace tilery
