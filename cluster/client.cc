#include "cluster/client.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/frame.h"
#include "io/error.h"

namespace tilery {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Failure = boost::system::error_code;

constexpr size_t kFramesPerWrite = 64;
constexpr size_t kProfilesKept = 16;
constexpr auto kGreetingTime = std::chrono::seconds(5);  // to connect and be welcomed
constexpr auto kFlushTime = std::chrono::seconds(1);
constexpr auto kFirstPause = std::chrono::milliseconds(50);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);

enum class Kind : uint8_t { kOutcome, kWant, kRenew, kProfile, kBye, kOther };

struct Out {
  Kind kind = Kind::kOther;
  std::string frame;
  int64_t number = 0;  // of an outcome: its "seq"; of a renewal: its "sent_us"
};

Kind KindOf(const std::string& type) {
  if (type == "outcome") return Kind::kOutcome;
  if (type == "want") return Kind::kWant;
  if (type == "renew") return Kind::kRenew;
  if (type == "profile") return Kind::kProfile;
  if (type == "bye") return Kind::kBye;
  return Kind::kOther;
}

}  // namespace

struct ControlClient::Impl {
  Impl(Endpoint endpoint_in, Json hello_in, double give_up_s, Handlers handlers_in)
      : endpoint(std::move(endpoint_in)),
        handlers(std::move(handlers_in)),
        give_up(
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(give_up_s))),
        hello(std::move(hello_in)) {
    hello["type"] = "hello";
    hello["protocol"] = kProtocol;
    hello["lease"] = INT64_MAX;  // the longest that it may become
    hello_frame = EncodeFrame(hello);
    if (hello_frame.size() > kMaxHello + 4) {
      throw Error(Fault::kInternal,
                  "the greeting of a worker has " + std::to_string(hello_frame.size()) +
                      " bytes, more than the " + std::to_string(kMaxHello) + " allowed");
    }
    broken_since = Clock::now();
    Connect();
    Watch();
    thread = std::thread([this] { io.run(); });
  }

  ~Impl() {
    asio::post(io, [this] {
      closing = true;
      flush_until = Clock::now() + kFlushTime;
      MaybeStop();
    });
    thread.join();
  }

  // ---- any thread ----

  void Send(Json message) {
    const std::lock_guard lock(mutex);
    Out out;
    out.kind = KindOf(message.at("type").get<std::string>());
    if (out.kind == Kind::kOutcome) message["seq"] = out.number = ++outcomes;
    if (out.kind == Kind::kRenew) out.number = message.value("sent_us", int64_t{0});
    out.frame = EncodeFrame(message);
    inbox.push_back(std::move(out));
    if (inbox.size() == 1) asio::post(io, [this] { TakeInbox(); });
  }

  // ---- the client's own thread ----

  void TakeInbox() {
    std::deque<Out> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(inbox);
    }
    for (Out& out : taken) {
      // A renewal that waits for a link is worth nothing: its age is what counts.
      if (out.kind == Kind::kRenew && !joined) continue;
      if (out.kind == Kind::kWant) {
        last_want = out;
        std::erase_if(queue, [](const Out& other) { return other.kind == Kind::kWant; });
        if (!joined) continue;
      }
      if (out.kind == Kind::kProfile && !joined) DropOldProfiles();
      queue.push_back(std::move(out));
    }
    Write();
  }

  void DropOldProfiles() {
    const auto is_profile = [](const Out& out) { return out.kind == Kind::kProfile; };
    if (static_cast<size_t>(std::count_if(queue.begin(), queue.end(), is_profile)) < kProfilesKept)
      return;
    queue.erase(std::find_if(queue.begin(), queue.end(), is_profile));
  }

  void Connect() {
    const int64_t of = ++generation;
    greeting_until = Clock::now() + kGreetingTime;
    frames = FrameReader(kMaxFrame);
    hello["lease"] = newest_lease;
    hello_frame = EncodeFrame(hello);
    resolver.async_resolve(
        endpoint.host, std::to_string(endpoint.port),
        [this, of](Failure failure, tcp::resolver::results_type found) {
          if (of != generation) return;
          if (failure) return Broken("look up " + endpoint.host + ": " + failure.message());
          asio::async_connect(socket, found, [this, of](Failure failure, const tcp::endpoint&) {
            if (of != generation) return;
            if (failure) return Broken("connect to " + Name() + ": " + failure.message());
            Failure ignored;
            socket.set_option(tcp::no_delay(true), ignored);
            asio::async_write(socket, asio::buffer(hello_frame),
                              [this, of](Failure failure, size_t) {
                                if (of == generation && failure)
                                  Broken("greet " + Name() + ": " + failure.message());
                              });
            Read();
          });
        });
  }

  void Read() {
    socket.async_read_some(
        asio::buffer(chunk), [this, of = generation](Failure failure, size_t count) {
          if (of != generation) return;
          if (failure) return Broken("read from " + Name() + ": " + failure.message());
          try {
            frames.Append({chunk.data(), count});
            while (auto body = frames.Next()) {
              Receive(DecodeBody(*body));
              if (of != generation) return;
            }
          } catch (const Error& error) {
            return Broken(error.what());
          } catch (const Json::exception& error) {
            return Broken(std::string("damaged control message: ") + error.what());
          }
          Read();
        });
  }

  void Receive(const Json& message) {
    const auto& type = message.at("type").get_ref<const std::string&>();
    if (type == "welcome") {
      const int64_t its_epoch = message.at("epoch").get<int64_t>();
      const bool first = !epoch.has_value();
      if (!first && *epoch != its_epoch) {
        return GiveUp("the scheduler at " + Name() + " was replaced by another run (epoch " +
                      std::to_string(its_epoch) + " after " + std::to_string(*epoch) + ")");
      }
      epoch = its_epoch;
      if (first) handlers.receive(message);
      Join();
      return;
    }
    if (type == "renewed") {
      const int64_t sent_us = message.at("sent_us").get<int64_t>();
      Acknowledge(sent_us);
      Renewed(sent_us);
    }
    if (type == "end") ended = true;
    handlers.receive(message);
    if (type == "leases") {
      for (const Json& lease : message.at("leases"))
        newest_lease = std::max(newest_lease, lease.at("lease").get<int64_t>());
    }
  }

  // A welcomed link: first what may be lost, in order, then what is new.
  void Join() {
    joined = true;
    pause = kFirstPause;
    if (last_want) queue.push_front(*last_want);
    queue.insert(queue.begin(), std::make_move_iterator(unproven.begin()),
                 std::make_move_iterator(unproven.end()));
    unproven.clear();
    Write();
  }

  void Write() {
    if (!joined || !flying.empty() || queue.empty()) return MaybeStop();
    std::vector<asio::const_buffer> buffers;
    while (!queue.empty() && flying.size() < kFramesPerWrite) {
      flying.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    for (const Out& out : flying) {
      buffers.push_back(asio::buffer(out.frame));
      if (out.kind == Kind::kOutcome) newest_written = out.number;
      if (out.kind == Kind::kRenew) renewals.push_back({out.number, newest_written, Clock::now()});
    }
    asio::async_write(socket, buffers, [this, of = generation](Failure failure, size_t) {
      if (of != generation) return;
      if (failure) return Broken("write to " + Name() + ": " + failure.message());
      for (Out& out : flying) {
        if (out.kind == Kind::kOutcome) unproven.push_back(std::move(out));
        if (out.kind == Kind::kBye) ended = true;
      }
      flying.clear();
      Write();
    });
  }

  // The scheduler answers renewals in the order of all that it received, so an answer proves what
  // was written before its renewal.
  void Acknowledge(int64_t sent_us) {
    while (!renewals.empty()) {
      const Renewal renewal = renewals.front();
      if (renewal.sent_us > sent_us) return;
      renewals.pop_front();
      while (!unproven.empty() && unproven.front().number <= renewal.newest_written)
        unproven.pop_front();
    }
  }

  void Renewed(int64_t sent_us) {
    int64_t known = renewed_us.load();
    while (sent_us > known && !renewed_us.compare_exchange_weak(known, sent_us)) {
    }
  }

  void Broken(const std::string& why) {
    if (stopped) return;
    if (joined) broken_since = Clock::now();
    joined = false;
    ++generation;
    Failure ignored;
    socket.close(ignored);
    resolver.cancel();
    queue.insert(queue.begin(), std::make_move_iterator(flying.begin()),
                 std::make_move_iterator(flying.end()));
    flying.clear();
    newest_written = 0;
    renewals.clear();
    std::erase_if(
        queue, [](const Out& out) { return out.kind == Kind::kRenew || out.kind == Kind::kWant; });
    if (ended || closing) return Stop();
    if (Clock::now() - broken_since >= give_up) return GiveUp(why);
    retry.expires_after(pause);
    pause = std::min<Clock::duration>(pause * 2, kLongestPause);
    retry.async_wait([this, of = generation](Failure failure) {
      if (!failure && of == generation) Connect();
    });
  }

  // Ends a greeting that takes too long and a link on which renewals are no longer answered.
  void Watch() {
    watch.expires_after(std::chrono::milliseconds(100));
    watch.async_wait([this](Failure failure) {
      if (failure || stopped) return;
      const auto now = Clock::now();
      const auto silent = std::max<Clock::duration>(std::chrono::seconds(5), give_up / 2);
      if (closing && now >= flush_until) return Stop();
      if (!joined && socket.is_open() && now >= greeting_until) Broken(Name() + " does not answer");
      if (joined && !renewals.empty() && now - renewals.front().written >= silent) {
        Broken(Name() + " does not answer any more");
      }
      if (!stopped) Watch();
    });
  }

  void MaybeStop() {
    if (closing && (!joined || (flying.empty() && queue.empty()))) Stop();
  }

  void GiveUp(const std::string& why) {
    if (stopped) return;
    Stop();
    handlers.lost(why);
  }

  void Stop() {
    if (stopped) return;
    stopped = true;
    joined = false;
    ++generation;
    Failure ignored;
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    socket.close(ignored);
    resolver.cancel();
    retry.cancel();
    watch.cancel();
    guard.reset();
  }

  std::string Name() const { return endpoint.host + ":" + std::to_string(endpoint.port); }

  struct Renewal {
    int64_t sent_us, newest_written;
    Clock::time_point written;
  };

  const Endpoint endpoint;
  const Handlers handlers;
  const Clock::duration give_up;
  std::atomic<int64_t> renewed_us{INT64_MIN};

  std::mutex mutex;  // guards the two below
  std::deque<Out> inbox;
  int64_t outcomes = 0;

  // Of the client's thread.
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  tcp::resolver resolver{io};
  tcp::socket socket{io};
  asio::steady_timer retry{io}, watch{io};
  int64_t generation = 0;  // of the link; callbacks of an older one are ignored
  Json hello;
  std::string hello_frame;
  int64_t newest_lease = 0;  // of those received
  FrameReader frames{kMaxFrame};
  std::array<char, 65536> chunk;
  std::deque<Out> queue;     // to be written
  std::vector<Out> flying;   // being written
  std::deque<Out> unproven;  // outcomes written whose arrival is not certain
  std::deque<Renewal> renewals;
  std::optional<Out> last_want;
  std::optional<int64_t> epoch;
  int64_t newest_written = 0;
  bool joined = false, ended = false, closing = false, stopped = false;
  Clock::duration pause = kFirstPause;
  Clock::time_point broken_since, greeting_until, flush_until;
  std::thread thread;
};

ControlClient::ControlClient(const Endpoint& endpoint, Json hello, double give_up_s,
                             Handlers handlers)
    : impl_(std::make_unique<Impl>(endpoint, std::move(hello), give_up_s, std::move(handlers))) {}

ControlClient::~ControlClient() = default;

void ControlClient::Send(Json message) { impl_->Send(std::move(message)); }

int64_t ControlClient::NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

bool ControlClient::LeaseYoungerThan(double seconds) const {
  const int64_t known = impl_->renewed_us.load();
  return known != INT64_MIN && static_cast<double>(NowUs() - known) < seconds * 1e6;
}

}  // namespace tilery
