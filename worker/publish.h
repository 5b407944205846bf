// The rules under which a worker gives a file its final name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "io/error.h"
#include "io/format.h"
#include "worker/unit_env.h"

namespace tilery {

// Error(kInput) "changed during the run" unless `path` still is the file that the plan saw.
void CheckUnchanged(const std::string& path, const FileStamp& planned);

// The same of a file that is open: `now` is its stamp.
void CheckSame(const std::string& path, const FileStamp& planned, const FileStamp& now);

// Opens a file of grids (io/vdb_file.h, io/tvdb_file.h). Errors as OpenUnchanged's.
template <typename File>
File OpenGridsUnchanged(const std::string& path, const FileStamp& planned) {
  std::optional<File> file;
  try {
    file.emplace(path);
  } catch (const Error& e) {
    if (e.fault() == Fault::kInput) CheckUnchanged(path, planned);
    throw;
  }
  CheckSame(path, planned, file->file().stamp());
  return *std::move(file);
}

// Opens the unit's input. Error(kInput) "changed during the run" if the file that is open is not
// the one that the plan saw, also where it can't be opened because of that; else what OpenReader
// throws.
std::unique_ptr<Reader> OpenUnchanged(const UnitEnv& env, const UnitTask& task);

// For OutputFile::Publish of outputs and stage files. Throws if the unit is no longer wanted, if
// the input has changed meanwhile, or (Error(kTransient)) if the lease may have gone to somebody
// else.
std::function<void()> RenameGuard(const UnitEnv& env, const UnitTask& task);

}  // namespace tilery
