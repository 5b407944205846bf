// Makes system calls of this program fail on purpose. The linker prefers the definitions in
// syscall_faults.cc to those of the C library, so the code under test needs no seam for it.
#pragma once

#include <cstddef>

namespace tilery {

struct SyscallFaults {
  int write_errno = 0;  // of pwrite, once `write_budget` bytes have been written
  size_t write_budget = 0;
  int fsync_errno = 0;  // of the fsync number `fsync_skip`, counting from 0
  int fsync_skip = 0;
  int close_errno = 0;  // of every close (the descriptor is closed all the same)
  int read_errno = 0;   // of every pread
  int rename_errno = 0;
  size_t short_count = 0;  // > 0: no pread or pwrite moves more than this many bytes
  bool interrupt = false;  // every other pread, pwrite and fsync ends with EINTR
};

// Active while it lives; for one thread at a time.
class InjectedFaults {
 public:
  explicit InjectedFaults(const SyscallFaults& faults);
  ~InjectedFaults();
  InjectedFaults(const InjectedFaults&) = delete;
};

// Calls of fsync seen since the last InjectedFaults began.
int FsyncCalls();

}  // namespace tilery
