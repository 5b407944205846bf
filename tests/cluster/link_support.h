// A server on a thread of its own, and a relay that can cut the link between it and a client.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cluster/server.h"

namespace tilery {

class ServerThread {
 public:
  using Received = std::function<void(ControlServer&, PeerId, const Json&)>;
  ServerThread(std::string token, Received received)
      : received_(std::move(received)),
        server_({"127.0.0.1"}, std::move(token),
                {[this](PeerId peer, const Json& hello) { received_(server_, peer, hello); },
                 [this](PeerId peer, const Json& message) { received_(server_, peer, message); },
                 [this](PeerId, const std::string&) { ++left; }}),
        thread_([this] {
          while (!stop_) server_.Poll(0.01);
        }) {}
  ~ServerThread() { Stop(); }
  void Stop() {
    if (stop_.exchange(true)) return;
    thread_.join();
  }
  uint16_t port() const { return server_.port(); }
  ControlServer& server() { return server_; }  // only through Post, or after Stop
  std::atomic<int> left{0};

 private:
  Received received_;
  ControlServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

inline int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Carries bytes between clients and a server until it is told to cut, which may lose bytes on their
// way.
class Relay {
 public:
  explicit Relay(uint16_t to) : to_(to) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  uint16_t port() const { return port_; }
  void Cut() { cut_ = true; }             // ends all links; new ones are made
  void Block(bool on) { blocked_ = on; }  // no new links

 private:
  struct Pair {
    int client, server;
  };
  void Run() {
    std::vector<Pair> pairs;
    const auto end = [](const Pair& p) { close(p.client), close(p.server); };
    while (!stop_) {
      if (cut_.exchange(false)) {
        for (const Pair& p : pairs) end(p);
        pairs.clear();
      }
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const Pair& p : pairs)
        fds.push_back({p.client, POLLIN, 0}), fds.push_back({p.server, POLLIN, 0});
      if (poll(fds.data(), fds.size(), 5) <= 0) continue;
      for (size_t i = pairs.size(); i-- > 0;) {
        bool over = false;
        for (int side = 0; side < 2; ++side) {
          if (fds[1 + 2 * i + static_cast<size_t>(side)].revents == 0) continue;
          char chunk[1500];
          const ssize_t got =
              recv(side == 0 ? pairs[i].client : pairs[i].server, chunk, sizeof chunk, 0);
          const int other = side == 0 ? pairs[i].server : pairs[i].client;
          over =
              over || got <= 0 || send(other, chunk, static_cast<size_t>(got), MSG_NOSIGNAL) != got;
        }
        if (over) end(pairs[i]), pairs.erase(pairs.begin() + static_cast<long>(i));
      }
      if (fds[0].revents != 0) {
        const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        const int server = blocked_ ? -1 : ConnectTo(to_);
        if (server < 0) {
          close(client);
        } else {
          pairs.push_back({client, server});
        }
      }
    }
    for (const Pair& p : pairs) end(p);
  }
  const uint16_t to_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false}, cut_{false}, blocked_{false};
  std::thread thread_;
};

}  // namespace tilery
