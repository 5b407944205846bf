// Files: positional reads, and outputs that appear under their final name only when whole.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tilery {

class ContentHash;

// What decides whether a file is still the one seen before. Times are nanoseconds since the epoch.
struct FileStamp {
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;
};

// Follows links. nullopt if nothing is there; Error(kInput) for every other failure.
std::optional<FileStamp> StampOf(const std::filesystem::path& path);

// XXH3-128 of the content as 32 hex digits. Error(kInput).
std::string HashFile(const std::filesystem::path& path);
std::string HashBytes(std::span<const std::byte> bytes);
std::string HashText(const std::string& text);

// From now on an InputFile of this process waits so long for a file that is not there, or whose
// handle is stale: on a network file system what one host has renamed may be seen on another a
// little later. Until then, and with 0, it does not wait.
void WaitForLateFiles(std::chrono::milliseconds patience);

// A file open for reading. Thread-safe: ReadAt carries its own offset. Only regular files are
// opened (a FIFO is refused without blocking). A handle that became stale is opened anew, if the
// file is the same still. Errors are Error(kInput) with path, offset and
// sizes, but kTransient for stale handles and a lack of descriptors or memory.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }  // by fstat at open
  int64_t size() const { return stamp_.size; }
  void ReadAt(int64_t offset, std::span<std::byte> into) const;      // all of it, or Error
  size_t ReadSome(int64_t offset, std::span<std::byte> into) const;  // short only at the end

 private:
  std::filesystem::path path_;
  FileStamp stamp_;
  int fd_ = -1;
};

struct Published {
  int64_t size = 0;
  std::string hash;  // XXH3-128 of the content
  FileStamp stamp;   // after the rename
};

enum class Durability { kFsync, kRename };  // outputs: file and folder synced; caches: rename only

// A new file being written under a temporary name in the folder of its target (created if missing).
// Not thread-safe. Error(kOutput) names path and the system's reason, also for a full disk
// (kTransient as above); the destructor removes the temporary file unless Publish has succeeded.
//
// Temporary names are ".tilery-<attempt>.part" (attempt: letters, digits, '.', '-'; unique among
// attempts), so they never extend the final name, never carry a known extension, and no glob
// matches.
class OutputFile {
 public:
  OutputFile(const std::filesystem::path& target, const std::string& attempt, int mode = 0666);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;

  const std::filesystem::path& target() const { return target_; }
  void Write(std::span<const std::byte> bytes);                    // at the running position
  void WriteAt(int64_t offset, std::span<const std::byte> bytes);  // does not move the position
  void Seek(int64_t offset);
  int64_t position() const { return position_; }
  int64_t size() const { return size_; }                     // highest byte written + 1
  size_t ReadAt(int64_t offset, std::span<std::byte> into);  // what was written so far
  void Truncate(int64_t size);

  // Syncs, reads the file back and hashes it (its size must be `size()`), calls `may_rename`
  // (throws to forbid, e.g. when the lease is too old), renames, syncs the folder. With kRename
  // nothing is synced, and a file that was written in one sequence is not read back: its hash was
  // taken on the way. At most once; nothing may be written after.
  Published Publish(Durability durability, const std::function<void()>& may_rename = {});

 private:
  std::filesystem::path target_;
  std::filesystem::path temp_;
  int fd_ = -1;
  int64_t position_ = 0;
  int64_t size_ = 0;
  // Hash of the first `hashed_` bytes as they were written; null once a write has left the
  // sequence.
  std::unique_ptr<ContentHash> written_;
  int64_t hashed_ = 0;
};

// Writes a small file whole (temp + fsync + rename), replacing what is there. `mode` e.g. 0600
// (less the umask). Its attempts are named by SmallFileAttempt.
void WriteFileAtomically(const std::filesystem::path& path, const std::string& content,
                         Durability durability, int mode = 0644);
// Attempt of a file that belongs to this process alone: "small-<host>-<pid>-<time>-<n>".
std::string SmallFileAttempt();
std::string ReadSmallFile(const std::filesystem::path& path, size_t limit = 64 << 20);

// Removes files named ".tilery-*.part" in `folder` (not below) for which `is_dead(attempt)` holds.
// Returns how many; what can't be removed is left.
int SweepTemporaries(const std::filesystem::path& folder,
                     const std::function<bool(const std::string& attempt)>& is_dead);

}  // namespace tilery
