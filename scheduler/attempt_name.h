// Names of attempts, part of the names of all temporary files of units (io/file.h):
//
//   <tag>.<unit>.<epoch>.<attempt>        tag: 12 hex digits of the work folder's path
//
// Jobs with work folders of their own may write into one folder, at the same time too: by the tag
// neither meets the other's temporaries, nor sweeps them.
#pragma once

#include <cstdint>
#include <string>

namespace tilery {

// `work` as 12 hex digits, the same however the folder is written.
std::string WorkTag(const std::string& work);

// Unique among all attempts of all runs in all work folders.
std::string AttemptName(const std::string& work, int64_t unit, int64_t epoch, int64_t attempt);

// Whether `attempt` is the name of one in this work folder.
bool IsAttemptOf(const std::string& work, const std::string& attempt);

}  // namespace tilery
