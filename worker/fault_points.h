// Faults on request, for tests that kill and disturb a worker at a chosen moment. Inert unless the
// environment variable TILERY_TEST_FAULT is set when the process starts:
//
//   TILERY_TEST_FAULT = rule[,rule...]      rule = action@place:argument[/worker]
//
//   kill@publish:3     SIGKILL to itself at the 3rd pass of this place
//   throw@read:2       Error(kTransient) at the 2nd pass
//   fail@write:1       Error(kOutput) at the 1st pass
//   hang@submit:2      never returns from the 2nd pass, while the process lives on
//   exhaust@submit:1   ends as a process does whose device has no memory left
//   delay@read:50ms    sleeps 50 ms at every pass
//   hold@write:4       the 4th and every later pass waits while the file named by
//                      TILERY_TEST_FAULT_HOLD exists: the run stands still, however fast it is
//   kill@read:1/w1     only in processes of the worker w1
//
// If TILERY_TEST_FAULT_ONCE names a file that does not exist, it is created by the first kill,
// throw, fail, hang or exhaust, and there is no second one by any process: a worker dies once, not
// every process in turn.
//
// Places: read (an infer unit's input), stage (each band of a stage unit), submit (before the
// engine), write (before a unit's result is written), assemble (each band), rename (right before a
// file gets its final name), publish (right after), report (before an outcome is sent), grids (each
// region of a file of grids). Passes are counted per place and process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilery {

enum class FaultPlace {
  kRead,
  kStage,
  kSubmit,
  kWrite,
  kAssemble,
  kRename,
  kPublish,
  kReport,
  kGrids
};
inline constexpr int kFaultPlaces = 9;

struct FaultRule {
  enum class Action { kKill, kThrow, kFail, kHang, kExhaust, kDelay, kHold };
  Action action = Action::kKill;
  FaultPlace place = FaultPlace::kRead;
  int64_t argument = 1;  // pass, from 1; of delays: milliseconds
  std::string worker;    // "": any
};

// Error(kUsage) naming the rule and what is allowed.
std::vector<FaultRule> ParseFaultRules(const std::string& text);

// Which worker this process is. Before the first FaultPoint; until then rules that name one are
// left out.
void NameFaultWorker(const std::string& worker);

// Thread-safe.
void FaultPoint(FaultPlace place);

}  // namespace tilery
