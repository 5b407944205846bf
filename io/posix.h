// System calls that finish what they began: interrupted and short ones go on. For io's sources
// only.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "io/error.h"
#include "io/file.h"

namespace tilery {

// Each returns 0 or an errno. `done` counts the bytes moved, also on failure; fewer than asked for
// with a result of 0 means the end of the file.
int PreadFully(int fd, int64_t offset, std::span<std::byte> into, size_t* done);
int PwriteFully(int fd, int64_t offset, std::span<const std::byte> bytes, size_t* done);
int SyncFile(int fd);
int CloseFile(int fd);  // the descriptor is gone in any case
int SyncFolder(const std::filesystem::path& folder);

FileStamp StampFrom(const struct stat& status);

// An Error with the system's reason. Shortages and stale handles are kTransient, whatever `fault`
// is.
Error SystemError(Fault fault, const std::string& what, int errno_value);

}  // namespace tilery
