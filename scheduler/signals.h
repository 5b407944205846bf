// INT, TERM and USR1 ask a run to drain; a second INT or TERM ends the process at once with exit
// code 75 (its children die with it).
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tilery {

void InstallDrainSignals();
// Name of the first signal that arrived ("SIGTERM"), "" if none.
std::string DrainSignal();

// While a run is still being prepared there is nothing to drain, and nothing that would be lost: as
// long as an object of this class lives, the first signal ends the process, wherever it is, with
// exit code 75. Before that, `last_words` is called with the signal's name on a thread of this
// object; it must not wait for others. A signal from before its time counts, too.
class EarlyEnd {
 public:
  explicit EarlyEnd(std::function<void(const std::string& signal)> last_words);
  ~EarlyEnd();
  EarlyEnd(const EarlyEnd&) = delete;

 private:
  void Watch();

  const std::function<void(const std::string&)> last_words_;
  std::mutex mutex_;  // guards `over_`; held until the process has ended
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace tilery
