// How well the workers of a run were used together, of all its hosts.
#pragma once

#include "scheduler/coordinator.h"

namespace tilery {

// A worker whose device runs tiles at less than this share of the median's rate is a straggler.
inline constexpr double kStragglerShare = 0.8;

// {"workers", "window_s", "efficiency", "worth", "imbalance", "tail_s", "stragglers": [{"worker",
// "host", "tiles_per_s", "median"}], "read_bytes", "written_bytes", "control_in_bytes",
// "control_out_bytes", "model_read_bytes", "model_broadcast_bytes", "hosts": [{"name", "workers",
// "tiles", "model_s", "there_s", "read_bytes", "written_bytes"}]}
//
//   workers     by name: one that was started again counts once
//   window      from the first unit that was given out to the last that was accepted
//   rate        of a device: its tiles by the time that its model ran; that of one which ran none
//               counts as the median
//   efficiency  tiles of all, by what their devices had run at these rates while they were there
//               within the window: 1 if none of them ever waited. Null if nothing ran
//   worth       so many devices that never wait and are there all the time: efficiency, times the
//               time that workers were there, by the window
//   imbalance   longest model time of those that stayed to the end, by their mean, minus 1
//   tail        from when the first of these had its last unit accepted to the end of the window
Json TogetherJson(const RunResult& result);

}  // namespace tilery
