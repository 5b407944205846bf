#include "cluster/worker_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/error.h"

namespace tilery {
namespace {

constexpr size_t kLineKept = 4096;
constexpr size_t kWordsKept = 2000;  // a reason names files, values and the way out

}  // namespace

WorkerLog::WorkerLog(const std::filesystem::path& file)
    : file_(file.empty() ? dup(STDERR_FILENO)
                         : open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}

void WorkerLog::Append(std::string_view bytes) {
  if (written_ < kLimit) {
    const std::string_view part = bytes.substr(0, kLimit - written_);
    written_ += part.size();
    Write(part);
    if (written_ == kLimit) Write("\n(more was written and left out)\n");
  }
  for (char c : bytes) {
    if (c == '\n') {
      if (line_.find_first_not_of(" \t\r") != std::string::npos) last_ = line_;
      line_.clear();
    } else if (line_.size() < kLineKept) {
      line_ += c;
    }
  }
}

std::string WorkerLog::LastLine() const {
  const bool begun = line_.find_first_not_of(" \t\r") != std::string::npos;
  return Printable(begun ? line_ : last_, kWordsKept);
}

void WorkerLog::Write(std::string_view bytes) {
  while (!bytes.empty() && file_.get() >= 0) {
    const ssize_t got = write(file_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(got));
  }
}

}  // namespace tilery
