#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <vector>

#include "io/error.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/posix.h"

namespace tilery {
namespace {

constexpr char kPrefix[] = ".tilery-";
constexpr char kSuffix[] = ".part";
constexpr size_t kAffixes = sizeof(kPrefix) + sizeof(kSuffix) - 2;
constexpr size_t kLongestName = 255;

Error OutputError(const std::string& what, int errno_value) {
  return SystemError(Fault::kOutput, what, errno_value);
}

bool IsAttemptName(const std::string& attempt) {
  return !attempt.empty() && attempt.size() + kAffixes <= kLongestName &&
         std::all_of(attempt.begin(), attempt.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '-';
         });
}

std::filesystem::path FolderOf(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

// Creates what is missing and syncs the entry of each new folder: a file that is safe on disk in a
// folder that is not would be lost all the same.
void CreateFolders(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> missing;
  std::filesystem::path at = folder;
  struct stat status;
  while (!at.empty() && stat(at.c_str(), &status) != 0 && errno == ENOENT) {
    missing.push_back(at);
    at = at.parent_path();
  }
  for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
    if (mkdir(next->c_str(), 0777) == 0) {
      if (const int failed = SyncFolder(FolderOf(*next))) {
        rmdir(next->c_str());  // so that another attempt syncs it again
        throw OutputError("sync the folder of " + Printable(next->string()), failed);
      }
    } else if (errno != EEXIST) {
      throw OutputError("create the folder " + Printable(next->string()), errno);
    }
  }
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& target, const std::string& attempt, int mode)
    : target_(target), written_(std::make_unique<ContentHash>()) {
  if (!IsAttemptName(attempt)) {
    throw Error(Fault::kInternal, "attempt \"" + Printable(attempt, 80) +
                                      "\" can't be part of a file name: letters, digits, '.' and "
                                      "'-' are allowed, at most 242 of them");
  }
  const std::string name = target.filename().string();
  if (name.empty() || name == "." || name == "..") {
    throw Error(Fault::kOutput,
                "create " + Printable(target.string()) + ": this names a folder, not a file");
  }
  if (name.size() > kLongestName) {  // found now, not at the rename after hours of work
    throw OutputError("create " + Printable(target.string()), ENAMETOOLONG);
  }
  const std::filesystem::path folder = FolderOf(target);
  CreateFolders(folder);
  const std::filesystem::path temp = folder / (kPrefix + attempt + kSuffix);
  do {
    fd_ = open(temp.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
               static_cast<mode_t>(mode));
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) {
    throw OutputError("create " + Printable(temp.string()) + " for " + Printable(name), errno);
  }
  temp_ = temp;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) CloseFile(fd_);
  if (!temp_.empty()) unlink(temp_.c_str());
}

void OutputFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  size_t done = 0;
  const int failed = PwriteFully(fd_, offset, bytes, &done);
  if (done > 0) size_ = std::max(size_, offset + static_cast<int64_t>(done));
  if (failed != 0) {
    written_.reset();
    throw OutputError("write " + Printable(target_.string()) + ", " + std::to_string(done) +
                          " of " + std::to_string(bytes.size()) + " bytes written at offset " +
                          std::to_string(offset),
                      failed);
  }
  if (written_ == nullptr || bytes.empty()) return;
  if (offset == hashed_) {
    written_->Update(bytes);
    hashed_ += static_cast<int64_t>(bytes.size());
  } else {
    written_.reset();
  }
}

void OutputFile::Write(std::span<const std::byte> bytes) {
  WriteAt(position_, bytes);
  position_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::Seek(int64_t offset) {
  if (offset < 0) {
    throw Error(Fault::kInternal,
                "seek to " + std::to_string(offset) + " in " + Printable(target_.string()));
  }
  position_ = offset;
}

size_t OutputFile::ReadAt(int64_t offset, std::span<std::byte> into) {
  size_t done = 0;
  if (const int failed = PreadFully(fd_, offset, into, &done)) {
    throw OutputError(
        "read back " + Printable(target_.string()) + " at offset " + std::to_string(offset),
        failed);
  }
  return done;
}

void OutputFile::Truncate(int64_t size) {
  if (size == size_) return;
  int failed = 0;
  do {
    failed = ftruncate(fd_, size) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0) {
    throw OutputError(
        "set the size of " + Printable(target_.string()) + " to " + std::to_string(size), failed);
  }
  size_ = size;
  written_.reset();
}

Published OutputFile::Publish(Durability durability, const std::function<void()>& may_rename) {
  const std::string name = Printable(target_.string());
  if (fd_ < 0 || temp_.empty()) {
    throw Error(Fault::kInternal, "publish " + name + ": published already, or failed before");
  }
  if (durability == Durability::kFsync) {
    if (const int failed = SyncFile(fd_)) throw OutputError("sync " + name, failed);
  }
  struct stat before;
  if (fstat(fd_, &before) != 0) throw OutputError("look at " + name, errno);
  if (before.st_size != size_) {
    throw Error(Fault::kOutput, "publish " + name + ": " + std::to_string(size_) +
                                    " bytes were written, but the file has " +
                                    std::to_string(before.st_size) +
                                    "; the disk or another process has damaged it");
  }
  Published published;
  published.size = size_;
  if (written_ != nullptr) published.hash = written_->Hex();
  if (durability == Durability::kFsync || written_ == nullptr) {
    ContentHash read_back;
    std::vector<std::byte> block(static_cast<size_t>(std::clamp<int64_t>(size_, 1, 1 << 20)));
    int64_t offset = 0;
    while (const size_t got = ReadAt(offset, block)) {
      read_back.Update(std::span(block).first(got));
      offset += static_cast<int64_t>(got);
    }
    const std::string hash = read_back.Hex();
    if (offset != size_ || (written_ != nullptr && hash != published.hash)) {
      throw Error(Fault::kOutput, "publish " + name + ": what is read back (" +
                                      std::to_string(offset) + " bytes) is not what was written (" +
                                      std::to_string(size_) +
                                      " bytes); the disk or another process has damaged it");
    }
    published.hash = hash;
  }
  // Network file systems report late failures here; afterwards would be too late.
  const int closed = CloseFile(fd_);
  fd_ = -1;
  if (closed != 0) throw OutputError("close " + name, closed);
  if (may_rename) may_rename();
  if (rename(temp_.c_str(), target_.c_str()) != 0) throw OutputError("rename to " + name, errno);
  temp_.clear();
  if (durability == Durability::kFsync) {
    if (const int failed = SyncFolder(FolderOf(target_))) {
      throw OutputError("sync the folder of " + name, failed);
    }
  }
  struct stat after;
  if (stat(target_.c_str(), &after) != 0) throw OutputError("look at " + name, errno);
  if (after.st_ino != before.st_ino) {
    throw Error(Fault::kTransient,
                "publish " + name + ": another process replaced the file at the same moment");
  }
  published.stamp = StampFrom(after);
  return published;
}

// A name that no other process on any host that shares the folder is using, nor has left behind: in
// containers process ids begin anew at every start, hence the time.
std::string SmallFileAttempt() {
  static std::atomic<uint64_t> counter{0};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name = "small-";
  for (const char* c = host.data(); *c != '\0' && name.size() < 100; ++c) {
    name += IsAttemptName(std::string(1, *c)) ? *c : '-';
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return name + "-" + std::to_string(getpid()) + "-" +
         std::to_string(std::chrono::nanoseconds(now).count()) + "-" + std::to_string(counter++);
}

void WriteFileAtomically(const std::filesystem::path& path, const std::string& content,
                         Durability durability, int mode) {
  OutputFile file(path, SmallFileAttempt(), mode);
  file.Write(std::as_bytes(std::span(content)));
  file.Publish(durability);
}

int SweepTemporaries(const std::filesystem::path& folder,
                     const std::function<bool(const std::string& attempt)>& is_dead) {
  int removed = 0;
  std::error_code failed;
  std::vector<std::filesystem::path> dead;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.size() <= kAffixes || !name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    std::error_code unknown;
    if (entry->symlink_status(unknown).type() != std::filesystem::file_type::regular) continue;
    const size_t length = name.size() - kAffixes;
    if (is_dead(name.substr(sizeof(kPrefix) - 1, length))) dead.push_back(entry->path());
  }
  for (const std::filesystem::path& path : dead) {
    if (unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace tilery
