// WORK/status.json: what `tilery status` and others read while a run goes on and after it, also
// over NFS.
#pragma once

#include <filesystem>

#include "cluster/message.h"
#include "scheduler/coordinator.h"

namespace tilery {

// {"state", "units": {"waiting", "leased", "done", "failed"}, "workers": [{"id", "host", "pid",
// "device", "state"}], "tiles_done", "tiles", "eta_s"}; eta_s is null while it is not known.
Json StatusJson(const Progress& progress);

// Replaces WORK/status.json in one step. False if that fails (a full disk): no reason to end a run.
bool WriteStatus(const std::filesystem::path& work, const Progress& progress);

// Reads it back. A run that is not over, though nobody holds the lock of the work folder, is
// "stopped" and has no workers. Error(kUsage) if no run of this folder has had a plan yet.
Json ReadStatus(const std::filesystem::path& work);

}  // namespace tilery
