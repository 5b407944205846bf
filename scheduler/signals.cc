#include "scheduler/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace tilery {
namespace {

std::atomic<int> first_signal{0};
std::atomic<int> ends{0};

constexpr int kExit = 75;
constexpr auto kLook = std::chrono::milliseconds(20);

void OnSignal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  if (signal != SIGUSR1 && ends.fetch_add(1) >= 1) _exit(kExit);
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

EarlyEnd::EarlyEnd(std::function<void(const std::string&)> last_words)
    : last_words_(std::move(last_words)), thread_([this] { Watch(); }) {}

EarlyEnd::~EarlyEnd() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EarlyEnd::Watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (const std::string signal = DrainSignal(); !signal.empty()) {
      last_words_(signal);
      _exit(kExit);
    }
    changed_.wait_for(lock, kLook);
  }
}

}  // namespace tilery
