// A worker that does what its device's name says:
//   wait           ready, then waits for its end; TERM ends it with 0
//   stubborn       ready, ignores INT and TERM
//   exit:N         writes "cannot load" to standard error and ends with code N before it is ready
//   ready-exit:N   the same, after it is ready
//   die            ends by SIGABRT before it is ready
//   ready-die      ends by SIGABRT after it is ready
//   chatter        writes 3 MiB to standard error, then waits
//   print:NAME     ready, writes the environment variable's value to standard error, then waits
// Its pid goes to standard error as soon as signals do what is said above.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cluster/worker_start.h"

int main() {
  const tilery::WorkerStart start = tilery::ReadWorkerStart(tilery::kControlFd);
  const std::string& what = start.device;
  // Taken by sigwait() below: a handler could run right before pause(), which would then wait for
  // another signal.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  if (what == "stubborn") {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
  } else {
    sigprocmask(SIG_BLOCK, &term, nullptr);
  }
  std::fprintf(stderr, "pid %d token %zu\n", getpid(), start.token.size());
  if (what.rfind("exit:", 0) == 0) {
    std::fprintf(stderr, "cannot load the model\n\n");
    return std::atoi(what.c_str() + 5);
  }
  if (what == "die") raise(SIGABRT);
  tilery::ReportReady(tilery::kControlFd);
  if (what == "ready-die") {
    usleep(20000);
    raise(SIGABRT);
  }
  if (what.rfind("ready-exit:", 0) == 0) {
    std::fprintf(stderr, "cannot go on\n");
    return std::atoi(what.c_str() + 11);
  }
  if (what == "chatter") {
    const std::string line(1023, 'x');
    for (int i = 0; i < 3 << 10; ++i) std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (what.rfind("print:", 0) == 0) {
    const char* value = std::getenv(what.c_str() + 6);
    std::fprintf(stderr, "value '%s'\n", value != nullptr ? value : "(unset)");
  }
  tilery::WatchParent(tilery::kControlFd);
  if (what == "stubborn") {
    for (;;) pause();
  }
  int number = 0;
  sigwait(&term, &number);
  _exit(0);
}
