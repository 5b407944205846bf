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

struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

// Thread-safe. One thread of its own does the I/O and calls `receive` for every message, in order;
// handlers must be quick and must not destroy the client. On a broken link it reconnects (hello
// again, same worker id and epoch) for at most `give_up_s`; then `lost` is called once, and nothing
// after it.
//
// What survives a broken link: every outcome whose arrival is not certain (a renewal that was sent
// after it has not been answered), the last `want`, and the newest profiles. Outcomes carry a
// running number "seq", by which the scheduler knows one that comes twice. The `welcome` of a
// reconnect is not passed on.
class ControlClient {
 public:
  struct Handlers {
    std::function<void(const Json&)> receive;
    std::function<void(const std::string& why)> lost;
  };
  ControlClient(const Endpoint& endpoint, Json hello, double give_up_s, Handlers handlers);
  ~ControlClient();         // sends what is queued, for at most one second
  void Send(Json message);  // queued
  // The clock of "sent_us": microseconds that never jump, of this process only.
  static int64_t NowUs();
  // True while a renewal answer younger than `seconds` is known: the right to rename a file.
  bool LeaseYoungerThan(double seconds) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
