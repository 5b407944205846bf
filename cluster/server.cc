#include "cluster/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/frame.h"
#include "io/error.h"

namespace tilery {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Failure = boost::system::error_code;

constexpr auto kSlice = std::chrono::milliseconds(5);  // of handling before Poll returns

// Each peer takes a descriptor, and a process has 1,024 of them unless it asks for more.
void AskForDescriptors() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));  // without, later peers wait
}

}  // namespace

struct ControlServer::Impl {
  // Owned by the map and by its pending callbacks; `open` is false once it left the map.
  struct Connection {
    Connection(asio::io_context& io, PeerId id_in) : id(id_in), socket(io) {}
    const PeerId id;
    tcp::socket socket;
    FrameReader frames{kMaxHello};
    std::array<char, 65536> chunk;
    std::string queued, flying;  // bytes to write, bytes being written
    Clock::time_point since = Clock::now();
    bool joined = false, open = true, closing = false;
  };
  using Shared = std::shared_ptr<Connection>;

  // An address on which it listens.
  struct Door {
    explicit Door(asio::io_context& io) : acceptor(io), pause(io) {}
    tcp::acceptor acceptor;
    asio::steady_timer pause;
  };

  Impl(const std::vector<std::string>& addresses, std::string token_in, Handlers handlers_in)
      : token(std::move(token_in)), handlers(std::move(handlers_in)) {
    AskForDescriptors();
    // The first address takes any free port, which another program may have on the next address.
    constexpr int kPortsTried = 16;
    for (int tried = 1; !Listen(addresses, tried == kPortsTried); ++tried) doors.clear();
    for (const auto& door : doors) Accept(*door);
  }

  // False if the port of the first address is taken on another one, and it is not the `last` try.
  bool Listen(const std::vector<std::string>& addresses, bool last) {
    for (const std::string& address : addresses) {
      try {
        auto door = std::make_unique<Door>(io);
        const uint16_t port = doors.empty() ? 0 : Port();
        const tcp::endpoint endpoint(asio::ip::make_address(address), port);
        door->acceptor.open(endpoint.protocol());
        door->acceptor.bind(endpoint);
        door->acceptor.listen();
        doors.push_back(std::move(door));
      } catch (const boost::system::system_error& error) {
        if (!doors.empty() && !last && error.code() == asio::error::address_in_use) return false;
        throw Error(Fault::kInternal,
                    "listen for workers on '" + address + "': " + error.code().message());
      }
    }
    return true;
  }

  uint16_t Port() const { return doors.at(0)->acceptor.local_endpoint().port(); }

  void Accept(Door& door) {
    auto connection = std::make_shared<Connection>(io, ++last_id);
    door.acceptor.async_accept(connection->socket, [this, &door, connection](Failure failure) {
      if (failure == asio::error::operation_aborted) return;
      if (!failure && strangers < kMaxStrangers) {
        Failure ignored;
        connection->socket.set_option(tcp::no_delay(true), ignored);
        connection->since = Clock::now();
        ++strangers;
        peers.emplace(connection->id, connection);
        Read(connection);
      } else if (!failure) {
        ++refused;
      } else {
        // Out of descriptors or the like: the next try must not spin.
        door.pause.expires_after(std::chrono::milliseconds(100));
        door.pause.async_wait([this, &door](Failure failure) {
          if (!failure) Accept(door);
        });
        return;
      }
      Accept(door);
    });
  }

  void Read(const Shared& c) {
    c->socket.async_read_some(asio::buffer(c->chunk), [this, c](Failure failure, size_t count) {
      if (!c->open) return;
      if (failure)
        return Drop(c, failure == asio::error::eof ? "it closed the link" : failure.message());
      traffic.in += static_cast<int64_t>(count);
      try {
        c->frames.Append({c->chunk.data(), count});
        while (auto body = c->frames.Next()) {
          c->joined ? handlers.received(c->id, DecodeBody(*body)) : Greet(c, *body);
          if (!c->open) return;
        }
      } catch (const Error& error) {
        return Drop(c, error.what());
      } catch (const Json::exception& error) {
        return Drop(c, std::string("damaged control message: ") + error.what());
      }
      Read(c);
    });
  }

  void Greet(const Shared& c, const std::string& body) {
    const Json hello = DecodeBody(body);
    const bool fits = hello.at("type") == "hello" && hello.value("protocol", 0) == kProtocol &&
                      SameToken(hello.value("token", std::string()), token);
    if (!fits) throw Error(Fault::kInternal, "wrong greeting");
    c->joined = true;
    c->frames.SetLimit(kMaxFrame);
    --strangers;
    handlers.joined(c->id, hello);
  }

  void Drop(const Shared& c, const std::string& why) {
    if (!c->open) return;
    Forget(c);
    if (c->joined) {
      handlers.left(c->id, why);
    } else {
      ++refused;
    }
  }

  void Forget(const Shared& c) {
    c->open = false;
    if (!c->joined) --strangers;
    Failure ignored;
    c->socket.close(ignored);
    peers.erase(c->id);
  }

  void Send(PeerId peer, const Json& message) {
    const auto found = peers.find(peer);
    if (found == peers.end() || found->second->closing) return;
    const Shared c = found->second;
    if (c->queued.empty()) unsent.push_back(c);
    c->queued += EncodeFrame(message);
    if (c->queued.size() + c->flying.size() > kMaxUnsent) {
      // Not from inside the caller's own work.
      asio::post(io, [this, c] { Drop(c, "it does not read what it is sent"); });
    }
  }

  void Flush() {
    for (const Shared& c : unsent) {
      if (c->open && c->flying.empty()) Write(c);
    }
    unsent.clear();
  }

  void Write(const Shared& c) {
    if (c->queued.empty()) {
      if (c->closing) Forget(c);
      return;
    }
    c->flying.swap(c->queued);
    asio::async_write(c->socket, asio::buffer(c->flying), [this, c](Failure failure, size_t sent) {
      traffic.out += static_cast<int64_t>(sent);
      if (!c->open) return;
      if (failure) return Drop(c, failure.message());
      c->flying.clear();
      if (c->flying.capacity() > (1 << 20)) c->flying.shrink_to_fit();
      Write(c);
    });
  }

  void Close(PeerId peer, bool now) {
    const auto found = peers.find(peer);
    if (found == peers.end()) return;
    const Shared c = found->second;
    c->closing = true;
    if (now || (c->queued.empty() && c->flying.empty())) Forget(c);
  }

  void DropSilentStrangers() {
    if (strangers == 0) return;
    const auto limit = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(kGreetingTime));
    std::vector<Shared> silent;
    for (const auto& [id, c] : peers) {
      if (!c->joined && c->since < limit) silent.push_back(c);
    }
    for (const Shared& c : silent) Drop(c, "no greeting");
  }

  void Poll(double seconds) {
    Flush();
    io.restart();
    if (io.poll_one() == 0) {
      io.restart();
      io.run_one_for(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
    }
    const auto until = Clock::now() + kSlice;
    while (Clock::now() < until && io.poll_one() > 0) {
    }
    DropSilentStrangers();
    Flush();
  }

  const std::string token;
  const Handlers handlers;
  asio::io_context io{1};
  std::vector<std::unique_ptr<Door>> doors;  // they stay where they are
  std::unordered_map<PeerId, Shared> peers;
  std::vector<Shared> unsent;  // have bytes queued since the last Flush
  PeerId last_id = 0;
  int strangers = 0;
  int64_t refused = 0;
  Traffic traffic;
};

ControlServer::ControlServer(const std::vector<std::string>& addresses, std::string token,
                             Handlers handlers)
    : impl_(std::make_unique<Impl>(addresses, std::move(token), std::move(handlers))) {}

ControlServer::~ControlServer() = default;

uint16_t ControlServer::port() const { return impl_->Port(); }
void ControlServer::Poll(double seconds) { impl_->Poll(seconds); }
void ControlServer::Send(PeerId peer, const Json& message) { impl_->Send(peer, message); }
void ControlServer::Close(PeerId peer, bool now) { impl_->Close(peer, now); }
void ControlServer::Post(std::function<void()> work) { asio::post(impl_->io, std::move(work)); }
ControlServer::Traffic ControlServer::traffic() const { return impl_->traffic; }
int64_t ControlServer::refused() const { return impl_->refused; }

}  // namespace tilery
