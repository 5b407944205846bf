// INT, TERM and USR1 ask a run to drain; a second INT or TERM ends the process at once with exit
// code 75 (its children die with it).
#pragma once

#include <string>

namespace tilery {

void InstallDrainSignals();
// Name of the first signal that arrived ("SIGTERM"), "" if none.
std::string DrainSignal();

}  // namespace tilery
