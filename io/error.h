// The one exception type of Tilery.
//
// A unit's code throws Error; worker/outcome turns exceptions into values in one place. The message
// is complete on its own: it names the file, the value found, the limit and the way out.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace tilery {

// Who has to act. Decides the exit code and whether a unit is worth another attempt.
enum class Fault {
  kUsage,   // the job or the command line is wrong: nothing runs, exit code 2
  kInput,   // this input is damaged, unreadable, vanished or changed: its item fails, never retried
  kOutput,  // this output can't be written (full disk, read-only): its item fails
  kModel,   // the model threw or its result is not finite: its item fails
  kTransient,  // may go away (lost brick, stale handle, out of memory): the unit is retried
  kInternal,   // a fault of ours
};

class Error : public std::runtime_error {
 public:
  Error(Fault fault, std::string message) : std::runtime_error(std::move(message)), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// "usage", "input", ... as written in reports and messages; FaultFromName throws kInternal if
// unknown.
const char* FaultName(Fault fault);
Fault FaultFromName(const std::string& name);

// "what: strerror(errno_value)", e.g. Errno("write /out/a.png", ENOSPC).
std::string Errno(const std::string& what, int errno_value);

// Bytes of a file name as printable text: control characters and bytes that are no UTF-8 become
// \xNN; longer than `limit` bytes is cut in the middle. For messages, logs and JSON.
std::string Printable(const std::string& bytes, size_t limit = 400);

}  // namespace tilery
