// Where a worker's standard error goes, and its last words.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cluster/process.h"

namespace tilery {

// Not thread-safe. Never throws: a log that can't be written is left out.
class WorkerLog {
 public:
  static constexpr size_t kLimit =
      1 << 20;  // bytes of one run; the rest is left out, with a line that says so
  explicit WorkerLog(const std::filesystem::path& file);  // empty: our own standard error
  void Append(std::string_view bytes);
  void NewProcess() { last_.clear(), line_.clear(); }  // the words so far were another's
  // The newest line that is not empty, printable, at most 2,000 bytes.
  std::string LastLine() const;

 private:
  void Write(std::string_view bytes);
  UniqueFd file_;
  size_t written_ = 0;
  std::string line_, last_;  // the line begun, the newest whole one
};

}  // namespace tilery
