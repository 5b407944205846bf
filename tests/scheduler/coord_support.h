// Plans and workers for tests of queue, coordinator and resume, without a job file and without a
// model.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/client.h"
#include "scheduler/coordinator.h"
#include "scheduler/plan.h"
#include "scheduler/wire.h"

namespace tilery {

// A picture of `tiles` tiles in a row, of one tile per unit: one infer unit for one tile, else as
// many and an assemble unit. Output "<folder>/out<index>.raw".
struct ItemSpec {
  int64_t tiles = 1;
  bool staged = false;
  int64_t scratch_bytes = 0;  // 0: some, if the item has several units
};
Plan MakeTestPlan(const std::vector<ItemSpec>& items, const std::string& folder);

// What the fake workers of a test write: outputs and bricks with real bytes, so that resume can
// judge them.
WorkerContext TestContext(const Plan& plan, const std::string& work);
// With leases that a machine busy with other things does not end.
RunOptions TestOptions(const std::string& work);

// Does a unit as a real worker would, without a model: outputs hold the item's key, bricks one
// array.
Outcome DoUnit(const UnitWork& work, const WorkerContext& context, int64_t unit, int64_t attempt,
               int64_t epoch);

// A worker that speaks the protocol on a thread of its own (the client's). `work` makes outcomes;
// nullopt: never answers that lease. It is asked about assemble units once all bricks are there.
class FakeWorker {
 public:
  struct Lease {
    int64_t lease = 0, unit = 0, attempt = 0;
    UnitWork work;
  };
  using Work = std::function<std::optional<Outcome>(const Lease&)>;
  struct Options {
    std::string id = "w0";
    int64_t pid = 1000;
    int64_t tiles_ahead = 4;
    double give_up_s = 60;
    bool renews = true;
    bool leaves = true;           // when it is told to drain or to end
    bool progresses = true;       // as its renewals have it
    Work work = {};               // unset: DoUnit
    int64_t assembles_ahead = 0;  // more than it may hold of other kinds
  };
  FakeWorker(uint16_t port, const std::string& token, int64_t epoch, Options options);
  ~FakeWorker();
  void Vanish();  // breaks the link for good, as a killed process would
  bool ended() const;
  int64_t done() const;
  std::vector<int64_t> dropped() const;
  std::vector<Lease> waiting() const;       // for bricks
  int answers() const { return answers_; }  // messages with leases, or with none; never blocks

 private:
  void Receive(const Json& message);
  void Do(const Lease& lease);
  void TakeBricks(const Json& message);
  void Want();

  const std::string token_;
  const int64_t epoch_;
  const Options options_;
  WorkerContext context_;
  mutable std::mutex mutex_;
  bool ended_ = false, gone_ = false;
  int64_t held_ = 0, done_ = 0;
  std::vector<int64_t> dropped_;
  std::map<int64_t, Lease> waiting_;
  std::atomic<int> answers_{0};
  std::condition_variable wake_;
  std::unique_ptr<ControlClient> client_;
  std::thread heart_;
};

}  // namespace tilery
