// The user's cache of compiled packages: a folder of bounded size, from which those go first whose
// last use lies longest ago.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

namespace tilery {

inline constexpr int64_t kLargestPackageCache = int64_t{20} << 30;  // bytes

// CacheFolder()/packages, made if missing; nullopt if there can be none.
std::optional<std::filesystem::path> PackageFolder();

// First part of the file names of a model's packages there: readable, and its own for each model
// (by hash), Torch and set of operator libraries (by hash), so that they do not push each other
// out.
std::string PackageName(const std::filesystem::path& model, const std::string& model_hash,
                        const std::string& torch, const std::string& libraries_hash);

// Notes that a package was used now; nothing if it can't.
void TouchPackage(const std::filesystem::path& package);

// Removes packages of `folder` until they have at most `limit` bytes, least recently used ones
// first; never those of `keep` (paths), nor any that was used within the last hour, since another
// process may be about to load it. Returns how many. What can't be removed stays. What compilations
// left half-written that were killed goes after a day.
int PrunePackages(const std::filesystem::path& folder, int64_t limit,
                  const std::set<std::filesystem::path>& keep);

}  // namespace tilery
