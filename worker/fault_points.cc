#include "worker/fault_points.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "cluster/worker_start.h"
#include "io/error.h"

namespace tilery {
namespace {

constexpr std::array<std::string_view, kFaultPlaces> kPlaceNames = {
    "read", "stage", "submit", "write", "assemble", "rename", "publish", "report", "grids"};
constexpr std::array<std::string_view, 7> kActionNames = {"kill",    "throw", "fail", "hang",
                                                          "exhaust", "delay", "hold"};

template <size_t n>
size_t Find(const std::array<std::string_view, n>& names, std::string_view name) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return i;
  }
  return n;
}

FaultRule ParseRule(std::string_view rule) {
  const size_t at = rule.find('@');
  const size_t colon = rule.find(':', at == std::string_view::npos ? 0 : at);
  if (at == std::string_view::npos || colon == std::string_view::npos) {
    throw Error(Fault::kUsage,
                "TILERY_TEST_FAULT: '" + std::string(rule) +
                    "' is no rule: write action@place:argument, e.g. kill@publish:3");
  }
  const size_t action = Find(kActionNames, rule.substr(0, at));
  const size_t place = Find(kPlaceNames, rule.substr(at + 1, colon - at - 1));
  std::string_view number = rule.substr(colon + 1);
  std::string worker;
  if (const size_t slash = number.find('/'); slash != std::string_view::npos) {
    worker = number.substr(slash + 1);
    number = number.substr(0, slash);
  }
  if (number.ends_with("ms")) number.remove_suffix(2);
  int64_t argument = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), argument);
  if (action == kActionNames.size() || place == kPlaceNames.size() || parsed.ec != std::errc() ||
      parsed.ptr != number.data() + number.size() || argument < 1) {
    throw Error(
        Fault::kUsage,
        "TILERY_TEST_FAULT: '" + std::string(rule) +
            "': the action is one of kill throw fail hang exhaust delay hold, the place one of "
            "read stage submit write assemble rename publish report grids, the argument a number "
            "from 1");
  }
  return {static_cast<FaultRule::Action>(action), static_cast<FaultPlace>(place), argument, worker};
}

const std::vector<FaultRule>& Rules() {
  static const std::vector<FaultRule> rules = [] {
    const char* text = std::getenv("TILERY_TEST_FAULT");
    return text == nullptr ? std::vector<FaultRule>() : ParseFaultRules(text);
  }();
  return rules;
}

std::string& WorkerName() {
  static std::string name;
  return name;
}

// Whether a fault that is not a delay may still happen.
bool MayHappen() {
  const char* const once = std::getenv("TILERY_TEST_FAULT_ONCE");
  if (once == nullptr) return true;
  const int fd = open(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void WaitWhileHeld() {
  const char* const hold = std::getenv("TILERY_TEST_FAULT_HOLD");
  while (hold != nullptr && access(hold, F_OK) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

std::vector<FaultRule> ParseFaultRules(const std::string& text) {
  std::vector<FaultRule> rules;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    rules.push_back(ParseRule(rest.substr(0, comma)));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return rules;
}

void NameFaultWorker(const std::string& worker) { WorkerName() = worker; }

void FaultPoint(FaultPlace place) {
  const std::vector<FaultRule>& rules = Rules();
  if (rules.empty()) return;
  static std::array<std::atomic<int64_t>, kFaultPlaces> passes{};
  const int64_t pass = ++passes[static_cast<size_t>(place)];
  const std::string where(kPlaceNames[static_cast<size_t>(place)]);
  for (const FaultRule& rule : rules) {
    if (rule.place != place || (!rule.worker.empty() && rule.worker != WorkerName())) continue;
    if (rule.action == FaultRule::Action::kDelay) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rule.argument));
    } else if (rule.action == FaultRule::Action::kHold) {
      if (pass >= rule.argument) WaitWhileHeld();
    } else if (rule.argument == pass && MayHappen()) {
      switch (rule.action) {
        case FaultRule::Action::kKill:
          std::raise(SIGKILL);
          break;
        case FaultRule::Action::kThrow:
          throw Error(Fault::kTransient, "TILERY_TEST_FAULT: thrown at " + where);
        case FaultRule::Action::kHang:
          for (;;) pause();
        case FaultRule::Action::kExhaust:
          std::fprintf(stderr, "TILERY_TEST_FAULT: at %s: asked 2000 bytes, 1000 free\n",
                       where.c_str());
          _exit(kNoMemoryExit);
        default:
          throw Error(Fault::kOutput, "TILERY_TEST_FAULT: failed at " + where);
      }
    }
  }
}

}  // namespace tilery
