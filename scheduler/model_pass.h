// Which of the workers that are there at the start pass the model's file on to each other, so that
// one of them reads it (cluster/broadcast.h). The scheduler brings them together and holds none of
// it: who has no seat, or comes later, reads the file. Values only; not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cluster/message.h"

namespace tilery {

struct ModelPassOptions {
  bool on = false;
  // Links of hosts that are expected at the start: nodes, or ranks. Others may come, but nobody
  // waits for them.
  int hosts = 1;
  int least_hosts = 2;  // of the members: fewer read the file, which their host then has in memory
};

class ModelPass {
 public:
  struct Member {
    int32_t worker = 0;      // UnitQueue::WorkerIndex
    std::string host, card;  // two workers on one card can't both take part
  };
  // To be sent to a worker as it stands (message.h: model).
  struct Answer {
    int32_t worker = 0;
    Json message;
  };
  // `there` says how many workers and hosts have been told to start by now.
  struct There {
    int workers = 0, hosts = 0;
  };

  explicit ModelPass(const ModelPassOptions& options) : options_(options) {}

  // A worker asks, maybe again after its link broke; `can`: it could take part. `now`: the run's
  // seconds.
  void Ask(const Member& member, bool can, double now);
  void TakeId(int32_t worker, const std::string& id);
  void Left(int32_t worker);  // it has ended
  // What is to be sent now. Call it now and then.
  std::vector<Answer> Look(const There& there, double now);

  static constexpr double kGather_s = 5;  // after the first has asked, for the others
  static constexpr double kId_s = 2;      // for a group's id

 private:
  enum class State : uint8_t { kGathering, kMakingId, kOver };
  void Choose();
  void AllRead();

  const ModelPassOptions options_;
  State state_ = State::kGathering;
  std::vector<Member> members_;  // who wait for an answer; the first is rank 0
  std::set<int32_t> asked_;      // who are there, or were when the group was made
  double since_ = -1;            // of the state; -1: nobody has asked
  std::vector<Answer> answers_;
};

}  // namespace tilery
