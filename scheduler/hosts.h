// Hosts that join a run: which workers each of them starts, on which of its devices.
//
//   tilery run (scheduler) <- control protocol -> tilery worker --join, or a rank of mpirun
//                                                   └─ supervisors, workers: as on one host
//
// A host's link carries no units: it tells what the host has, is told which workers to start, and
// reports their deaths at once. Workers then have links of their own. Values only; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/message.h"
#include "cluster/server.h"

namespace tilery {

// Seconds that a host goes on without a link, before it ends its workers and itself; longer than a
// worker, which has a lease's time.
inline constexpr double kHostGiveUp = 20;

// What the job says of every host.
struct HostPolicy {
  std::string card;                  // name of its GPUs; "": the CPU
  std::string precision;             // for the environment of workers
  std::vector<std::string> folders;  // that the host must see, each with the run's join.json
  std::optional<int> workers;  // of each host (of each rank under mpirun); nullopt: one per device
  std::optional<int> threads;  // of all workers of a host together; nullopt: what it has
};

// What a host says in its "hello", beside {"role": "host", "host", "pid"}.
struct HostOffer {
  struct Card {
    std::string device, uuid, name;  // as DeviceSeat has them
  };
  int cpus = 1;       // that its workers may use
  bool rank = false;  // of mpirun: one worker each, unless the job says how many
  std::vector<Card> cards;
};
Json ToJson(const HostOffer& offer);
HostOffer HostOfferFromJson(const Json& json);  // Json::exception if something lacks

// What it is told to start.
struct HostOrder {
  struct Worker {
    std::string id, device;  // "w3"; "cpu", or a card of its offer
    int threads = 1;
  };
  std::string refused;  // not empty: nothing, and why
  std::string precision;
  std::vector<std::string> folders;  // HostPolicy::folders; the first is the work folder
  std::vector<Worker> workers;
  bool fixed_threads = false;  // the job says how many; else the host may choose by NUMA node
};
Json ToJson(const HostOrder& order);
HostOrder HostOrderFromJson(const Json& json);  // Json::exception if something lacks

class HostDesk {
 public:
  // Workers of hosts are named from w<first> on.
  HostDesk(HostPolicy policy, int first) : policy_(std::move(policy)), next_(first) {}

  struct Host {
    PeerId peer = 0;  // 0: no link now
    std::string name;
    int64_t pid = 0;
    std::vector<HostOrder::Worker> workers;
    double unlinked_at = -1;  // since when it has no link
    bool gone = false;
  };

  // A host that greets, or greets again after its link broke. Error(kInternal) or Json::exception
  // if its greeting is not understood.
  struct Admitted {
    Host* host;
    HostOrder order;
    bool again = false;
  };
  Admitted Admit(PeerId peer, const Json& hello);
  Host* Of(PeerId peer);                      // nullptr if unknown
  Host* OfWorker(const std::string& worker);  // nullptr if none that is there
  // It will not come back; its devices are free for others.
  void Leave(Host& host);
  // One of its workers will not come back. Its device has failed it, and stays taken.
  static void Forget(Host& host, const std::string& worker);
  std::vector<std::unique_ptr<Host>>& all() { return all_; }

 private:
  HostOrder OrderFor(const std::string& host, const HostOffer& offer);

  const HostPolicy policy_;
  int next_;
  std::vector<std::unique_ptr<Host>> all_;                   // stay where they are
  std::map<std::string, std::map<std::string, int>> taken_;  // host -> device -> workers on it
};

}  // namespace tilery
