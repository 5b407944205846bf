// The scheduler's side of the control protocol: accepts workers, checks their token, moves frames.
//
// Everything happens inside Poll, on the caller's thread: no handler runs at another time. Only
// Post may be called from other threads. Memory per connection is bounded: by kMaxHello before the
// greeting, by one frame while reading, and by kMaxUnsent while writing (a peer that does not read
// is cut off). Raises the process's soft limit of open files, up to the hard one: each peer has
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/message.h"

namespace tilery {

using PeerId = int64_t;  // of one connection; never used twice

class ControlServer {
 public:
  struct Handlers {
    std::function<void(PeerId, const Json& hello)> joined;      // token and protocol were right
    std::function<void(PeerId, const Json& message)> received;  // throws Error: the peer is cut off
    std::function<void(PeerId, const std::string& why)> left;   // only for peers that joined; once
  };
  static constexpr size_t kMaxUnsent = 256 << 20;
  static constexpr int kMaxStrangers =
      64;  // connections that have not greeted yet; further ones are closed
  static constexpr double kGreetingTime = 10;  // seconds

  // Listens on these addresses, on one free port of all of them. Error(kInternal) naming address
  // and reason.
  ControlServer(const std::vector<std::string>& addresses, std::string token, Handlers handlers);
  ~ControlServer();

  uint16_t port() const;
  // Waits for at most `seconds` for something to do, then does what is ready, for at most about 5
  // ms.
  void Poll(double seconds);
  // Queues a message; what is queued within one Poll goes out in one write. Unknown peers are
  // ignored.
  void Send(PeerId peer, const Json& message);
  // Closes after what is queued was written, or at once if `now`. `left` is not called.
  void Close(PeerId peer, bool now = false);
  void Post(std::function<void()> work);  // thread-safe: runs inside the next Poll
  struct Traffic {
    int64_t in = 0, out = 0;  // bytes
  };
  Traffic traffic() const;  // of all links so far
  int64_t refused() const;  // connections dropped for a wrong token, protocol or greeting

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
