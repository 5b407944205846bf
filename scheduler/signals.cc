#include "scheduler/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace tilery {
namespace {

std::atomic<int> first_signal{0};
std::atomic<int> ends{0};

void OnSignal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  if (signal != SIGUSR1 && ends.fetch_add(1) >= 1) _exit(75);
}

}  // namespace

void InstallDrainSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  // A closed pipe behind standard error must not end a run.
  signal(SIGPIPE, SIG_IGN);
}

std::string DrainSignal() {
  switch (first_signal.load()) {
    case 0:
      return "";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "a signal";
  }
}

}  // namespace tilery
