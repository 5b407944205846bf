#include "scheduler/mpi_run.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/process.h"
#include "cluster/worker_start.h"
#include "io/error.h"
#include "scheduler/commands.h"
#include "scheduler/join.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStarts = 5;  // of the child that starts workers
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kEndTime = std::chrono::seconds(5);  // for it to end after the run has

// The child that takes part for this rank.
class Part {
 public:
  Part() { Start(); }

  // From now on it knows where to go.
  void Tell(std::string line) {
    line_ = std::move(line);
    Send();
  }
  // Looks after it; true while it runs or is started anew. It ends with the run.
  bool Goes() {
    if (!child_) return false;
    const auto ended = child_->Poll();
    if (!ended) return true;
    child_.reset();
    if (ended->by_signal && ++starts_ < kStarts) {
      std::cerr << "tilery: the process that starts this rank's workers ended by " << ended->words()
                << "; another takes its place" << std::endl;
      Start();
      Send();
      return true;
    }
    return false;
  }
  void WaitForEnd() {
    const auto until = Clock::now() + kEndTime;
    while (Goes() && Clock::now() < until) std::this_thread::sleep_for(kLook);
    child_.reset();
  }

 private:
  void Start() {
    auto [ours, its] = SocketPair();
    child_ = std::make_unique<Child>(
        SpawnSpec{SelfExecutable(), {"join-rank"}, {}, its.get(), -1, true});
    control_ = std::move(ours);
  }
  void Send() {
    if (line_.empty()) return;
    (void)!send(control_.get(), line_.data(), line_.size(), MSG_NOSIGNAL);
  }

  UniqueFd control_;
  std::unique_ptr<Child> child_;
  std::string line_;
  int starts_ = 1;
};

// Of one host.
struct RanksHere {
  int all = 1, before = 0;  // how many; how many of them come before this one
};

RanksHere CountRanks(const std::vector<std::string>& hosts, int rank) {
  const auto me = hosts.begin() + rank;
  return {static_cast<int>(std::count(hosts.begin(), hosts.end(), *me)),
          static_cast<int>(std::count(hosts.begin(), me, *me))};
}

std::string LineFor(const Meeting& meeting, const RanksHere& here) {
  return Json{{"meeting", ToJson(meeting)}, {"ranks_here", here.all}, {"rank_here", here.before}}
             .dump() +
         "\n";
}

}  // namespace

int RunUnderMpi(const MpiLaunch& launch, const std::function<int(const RunStage&)>& body) {
  auto part = std::make_unique<Part>();
  MpiSession mpi(launch);
  const std::vector<std::string> hosts = mpi.Hosts();
  const RanksHere here = CountRanks(hosts, mpi.rank());
  // Takes part in one run after the other; each is told of by what MPI brings.
  const auto begin = [&](const std::string& line) {
    if (!part) part = std::make_unique<Part>();
    part->Tell(line);
  };
  if (mpi.rank() != 0) {
    for (;;) {
      const std::string text = mpi.Broadcast("");
      if (text.empty()) break;
      begin(LineFor(MeetingFromJson(Json::parse(text)), here));
      while (part->Goes()) std::this_thread::sleep_for(kLook);
      part.reset();
    }
    mpi.Finish();
    return 0;
  }

  const RunStage run = [&](const Job& given, const TakeDocument& take) {
    Job job = given;
    bool told = false;
    Crowd crowd;
    crowd.local = false;
    crowd.ranks = mpi.size();
    crowd.ranks_here = here.all;
    // For what shares a GPU's memory, all of this host's count.
    crowd.workers = job.execution.workers;
    if (crowd.workers) job.execution.workers = *crowd.workers * here.all;
    const bool one_host = here.all == mpi.size();
    if (!one_host || !job.execution.listen.empty())
      crowd.addresses = AddressesOfHost(job.execution.listen);
    crowd.announce = [&](const Meeting& meeting) {
      mpi.Broadcast(ToJson(meeting).dump());
      told = true;
      begin(LineFor(meeting, here));
    };
    crowd.look = [&] { part->Goes(); };
    const auto wait = [&] {
      if (told) part->WaitForEnd();
      if (told) part.reset();
    };
    try {
      const int code = RunCommand(job, take, crowd);
      wait();
      return code;
    } catch (...) {
      wait();
      throw;
    }
  };
  int code = kExitInternal;
  try {
    code = body(run);
  } catch (...) {
    code = TellError();
  }
  mpi.Broadcast("");
  mpi.Finish();
  return code;
}

int JoinAsRank() {
  std::string line;
  for (char c = 0; c != '\n';) {
    const ssize_t got = read(kControlFd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;  // there is nothing to do
    line += c;
  }
  const Json json = Json::parse(line);
  JoinOptions options;
  options.meeting = MeetingFromJson(json.at("meeting"));
  options.rank = true;
  options.ranks_here = json.at("ranks_here").get<int>();
  options.rank_here = json.at("rank_here").get<int>();
  options.parent_fd = kControlFd;
  return Join(options);
}

}  // namespace tilery
