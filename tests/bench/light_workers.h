// Workers for benchmarks of the scheduler: they speak the real protocol and do nothing.
#pragma once

#include <cstdint>
#include <string>

namespace tilery {

struct LightWorkers {
  int first = 0, count = 1;  // numbers of the workers
  uint16_t port = 0;
  std::string token;
  int64_t epoch = 0;
  int64_t ahead = 256;  // units that each may hold
  double unit_s = 0;    // for each unit; 0: all that came are reported at once
};

// Until the run has ended; for a process of its own. Writes to `fd`, which it closes, how long each
// worker waited between asking for units and getting some: int32 microseconds, one after the other.
void RunLightWorkers(const LightWorkers& workers, int fd);

}  // namespace tilery
