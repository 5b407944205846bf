// The rules under which a worker gives a file its final name.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/format.h"
#include "worker/unit_env.h"

namespace tilery {

// Error(kInput) "changed during the run" unless `path` still is the file that the plan saw.
void CheckUnchanged(const std::string& path, const FileStamp& planned);

// The same of a file that is open: `now` is its stamp.
void CheckSame(const std::string& path, const FileStamp& planned, const FileStamp& now);

// Opens the unit's input. Error(kInput) "changed during the run" if the file that is open is not
// the one that the plan saw, also where it can't be opened because of that; else what OpenReader
// throws.
std::unique_ptr<Reader> OpenUnchanged(const UnitEnv& env, const UnitTask& task);

// For OutputFile::Publish of outputs and stage files. Throws if the unit is no longer wanted, if
// the input has changed meanwhile, or (Error(kTransient)) if the lease may have gone to somebody
// else.
std::function<void()> RenameGuard(const UnitEnv& env, const UnitTask& task);

}  // namespace tilery
