// A worker's side of the control protocol: one connection, kept up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cluster/message.h"

namespace tilery {

struct Endpoint { std::string host; uint16_t port = 0; };

// Thread-safe. One thread of its own does the I/O and calls `receive` for every message, in order. On a
// broken link it reconnects (hello again, same worker id and epoch) for at most `give_up_s`, keeping unsent
// outcomes; then `lost` is called once.
class ControlClient {
 public:
  struct Handlers {
    std::function<void(const Json&)> receive;
    std::function<void(const std::string& why)> lost;
  };
  ControlClient(const Endpoint& endpoint, Json hello, double give_up_s, Handlers handlers);
  ~ControlClient();
  void Send(Json message);      // queued; outcomes survive a reconnect
  // True while a renewal answer younger than `seconds` is known: the right to rename a file.
  bool LeaseYoungerThan(double seconds) const;
  void Renewed(int64_t sent_us);  // called by the receiver of "renewed"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
