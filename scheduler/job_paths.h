// Paths as people write them in jobs: relative to the job file, with ~ and ${VAR}.
#pragma once

#include <filesystem>
#include <string>

#include "scheduler/job_value.h"

namespace tilery {

// Absolute, without "." and "..", a trailing "/" kept. `~` and `~/...` become the home folder,
// ${VAR} the environment variable's value; Error(kUsage) if it is not set. Fields such as {stem}
// stay; in a template, braces that come from `base`, home or a variable are doubled.
std::string ExpandPath(const JobValue& value, const JobKey& key, const std::string& text,
                       const std::filesystem::path& base);

// The part of a template before the folder that holds its first field: "/out/a" for
// "/out/a/x{stem}.png"; the parent folder of a plain file; the folder itself for "/out/".
std::string FolderOfTemplate(const std::string& output_template);

// Whether a folder stands where the template points. Error(kUsage) as from CheckTemplate.
bool IsFolder(const std::string& output_template);

// Error(kUsage) for an unknown or unsupported field, naming the nearest. "{{" and "}}" are braces.
void CheckTemplate(const std::string& output_template);

}  // namespace tilery
