// The links of hosts that join a run: greets them, hears of their workers, passes on what they are
// to do. The coordinator's part for them, on its thread.
#pragma once

#include <functional>
#include <string>

#include "cluster/server.h"
#include "scheduler/coordinator.h"
#include "scheduler/hosts.h"

namespace tilery {

class HostLinks {
 public:
  // `options` as of the run; `drain_worker` asks a worker to finish what it has begun and to end.
  // All outlive this.
  HostLinks(const RunOptions& options, int64_t epoch, ControlServer& server,
            std::function<void(const std::string& worker)> drain_worker);

  // Whether the greeting, message or link is a host's (or of somebody who only looks for us): then
  // it is dealt with. Error(kInternal) or Json::exception cut the peer off.
  bool Joined(PeerId peer, const Json& hello);
  bool Received(PeerId peer, const Json& message);
  bool Left(PeerId peer, double now);

  // True if the worker is a host's that can be reached.
  bool Kill(const std::string& worker);
  void Look(double now);  // hosts that have been silent for too long have gone
  void Stop();            // no worker shall be started again
  void End();             // all is done
  bool any_linked();
  int joined();   // so many are there
  int workers();  // that they were told to start

 private:
  void Tell(HostNews news);
  void Gone(HostDesk::Host& host, const std::string& how);

  const RunOptions& options_;
  const int64_t epoch_;
  ControlServer& server_;
  const std::function<void(const std::string&)> drain_worker_;
  HostDesk desk_;
  bool stopped_ = false, ended_ = false;
};

}  // namespace tilery
