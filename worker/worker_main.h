// What both worker executables do.
#pragma once

#include "worker/backend.h"

namespace tilery {

// Returns the exit code. Messages for people go to standard error.
int WorkerMain(int argc, char** argv, const Backend& backend);

}  // namespace tilery
