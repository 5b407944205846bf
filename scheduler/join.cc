#include "scheduler/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "cluster/gpus.h"
#include "cluster/launcher.h"
#include "io/error.h"
#include "io/file.h"
#include "scheduler/commands.h"
#include "scheduler/devices.h"
#include "scheduler/hosts.h"
#include "scheduler/launch_plan.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"
#include "scheduler/signals.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr double kRenewal = 1;
constexpr double kAnswerTime = 2;   // of a scheduler that is there
constexpr double kFolderTime = 10;  // for what another host wrote to be seen here
constexpr double kEndTime = 2;      // for workers to end by themselves, as the scheduler asks them
constexpr double kLeaveTime = 30;   // for what they have begun

class Host {
 public:
  explicit Host(const JoinOptions& options) : options_(options) {}

  int Run() {
    const std::optional<Meeting> meeting = Find();
    if (!meeting) return over_ ? 0 : kExitUsage;
    DeviceChoice devices;
    const HostOffer offer = Offer(devices);
    Json hello = {{"token", meeting->token},
                  {"role", "host"},
                  {"host", HostName()},
                  {"pid", getpid()},
                  {"offer", ToJson(offer)}};
    ControlClient client(endpoint_, std::move(hello), kHostGiveUp,
                         {[this](const Json& message) { Put(message); },
                          [this](const std::string& why) {
                            Put({{"type", "lost"}, {"why", why}});
                          }});
    const std::optional<Json> welcome = Await("welcome");
    if (!welcome) return lost_.empty() ? 0 : Lost();
    const HostOrder order = HostOrderFromJson(welcome->at("order"));
    if (!order.refused.empty()) return Refused(order.refused);
    for (const fs::path folder : order.folders) {
      if (SeesFolder(folder, *meeting)) continue;
      client.Send({{"type", "bye"}});
      return Refused(fmt::format(
          "{} does not see the folder {} as the scheduler's host does: input, output, work and "
          "scratch folder (execution.scratch) must lie on a file system that all hosts share, "
          "under "
          "one path",
          Printable(HostName()), Printable(folder.string())));
    }
    std::vector<WorkerLaunch> launches = Launches(order, devices);
    BindToNodes(launches, devices.seats,
                {order.fixed_threads, options_.ranks_here, options_.rank_here});
    LocalLauncher launcher(SelfExecutable(), std::move(launches), endpoint_, meeting->token,
                           welcome->at("epoch").get<int64_t>(), order.folders.at(0));
    return Serve(client, launcher);
  }

 private:
  // A scheduler that answers: its meeting, with endpoint_ set. nullopt: none did, or all is over.
  std::optional<Meeting> Find() {
    const auto until = Clock::now() + Seconds(options_.wait_s);
    bool seen = false;
    while (!Over()) {
      const std::optional<Meeting> meeting =
          options_.meeting ? options_.meeting : ReadMeeting(options_.work);
      seen = seen || meeting.has_value();
      if (meeting) {
        if (const auto found = FindScheduler(*meeting, kAnswerTime)) {
          endpoint_ = *found;
          return meeting;
        }
      }
      if (Clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (over_) return std::nullopt;
    std::string where;
    if (options_.meeting) {
      for (const std::string& address : options_.meeting->addresses)
        where += fmt::format("{}{}:{}", where.empty() ? "" : ", ", address, options_.meeting->port);
      where = Printable(where) + " (or its token is another)";
    } else {
      where = seen ? "where " + Printable(MeetingFile(options_.work).string()) + " says"
                   : Printable(options_.work.string()) + ", which has no join.json";
    }
    std::cerr
        << fmt::format(
               "tilery worker: no run answered within {:.0f} s at {}. Start `tilery run` with "
               "--listen first; a network between the hosts must let its port through",
               options_.wait_s, where)
        << std::endl;
    return std::nullopt;
  }

  HostOffer Offer(DeviceChoice& devices) const {
    HostOffer offer;
    offer.cpus = std::max(1, UsableCpus() / std::max(1, options_.ranks_here));
    offer.rank = options_.rank;
    try {
      devices = ChooseDevices(Job{});
    } catch (const Error& error) {  // the run may well be one on CPUs
      std::cerr << "tilery worker: " << error.what() << std::endl;
      devices.seats = {CpuSeat()};
    }
    for (const std::string& warning : devices.warnings)
      std::cerr << "tilery worker: " << warning << std::endl;
    if (devices.gpu()) {
      for (const DeviceSeat& seat : devices.seats)
        offer.cards.push_back({seat.device, seat.uuid, seat.name});
    }
    return offer;
  }

  static std::vector<WorkerLaunch> Launches(const HostOrder& order, const DeviceChoice& devices) {
    std::vector<WorkerLaunch> launches;
    for (const HostOrder::Worker& worker : order.workers) {
      const auto found =
          std::find_if(devices.seats.begin(), devices.seats.end(),
                       [&](const DeviceSeat& seat) { return seat.device == worker.device; });
      const DeviceSeat seat = found != devices.seats.end() ? *found : CpuSeat();
      launches.push_back({worker.id, seat.device, worker.threads, seat.executable,
                          seat.EnvironmentFor(order.precision)});
    }
    return launches;
  }

  // What one host writes, another may see a little later.
  bool SeesFolder(const fs::path& work, const Meeting& meeting) const {
    const auto until = Clock::now() + Seconds(kFolderTime);
    do {
      try {
        const auto seen = ReadMeeting(work);
        if (seen && SameToken(seen->token, meeting.token)) return true;
      } catch (const Error&) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } while (Clock::now() < until);
    return false;
  }

  int Serve(ControlClient& client, LocalLauncher& launcher) {
    auto next_renewal = Clock::now();
    std::optional<Clock::time_point> leaving;
    while (true) {
      const auto now = Clock::now();
      if (now >= next_renewal) {
        next_renewal = now + std::chrono::duration_cast<Clock::duration>(Seconds(kRenewal));
        client.Send({{"type", "renew"}, {"sent_us", ControlClient::NowUs()}});
      }
      for (const LocalLauncher::Event& event : launcher.Poll()) {
        client.Send({{"type", "death"},
                     {"worker", event.worker},
                     {"how", event.how},
                     {"gone", event.gone_for_good},
                     {"refused", event.refused},
                     {"no_memory", event.no_memory}});
      }
      while (const std::optional<Json> message = Take()) {
        const auto& type = message->at("type").get_ref<const std::string&>();
        if (type == "kill") launcher.Kill(message->at("worker").get<std::string>());
        if (type == "stop") launcher.Stop();
        if (type == "lost") return Lost();
        if (type != "end") continue;
        launcher.WaitAll(kEndTime);
        client.Send({{"type", "bye"}});
        return 0;
      }
      if (ParentGone()) return kExitInterrupted;
      if (!options_.rank && !leaving && !DrainSignal().empty()) {
        std::cerr << "tilery worker: " << DrainSignal()
                  << ": finishing what is begun, then leaving the run" << std::endl;
        leaving = now;
        launcher.Stop();
        client.Send({{"type", "leave"}});
      }
      if (leaving && (launcher.AllEnded() || now - *leaving > Seconds(kLeaveTime))) {
        client.Send({{"type", "bye"}});
        return 0;
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  int Refused(const std::string& why) const {
    std::cerr << "tilery worker: " << why << std::endl;
    return kExitUsage;
  }
  int Lost() const {
    std::cerr << "tilery worker: the scheduler was lost: " << Printable(lost_, 1000)
              << "; its own command resumes the run" << std::endl;
    return kExitInterrupted;
  }

  bool ParentGone() const {
    if (options_.parent_fd < 0) return false;
    char ignored;
    pollfd fd{options_.parent_fd, POLLIN, 0};
    return poll(&fd, 1, 0) > 0 && read(options_.parent_fd, &ignored, 1) == 0;
  }

  // Nobody needs us any more.
  bool Over() {
    over_ = over_ || ParentGone() || (!options_.rank && !DrainSignal().empty());
    return over_;
  }

  // ---- messages, from the client's thread ----

  void Put(const Json& message) {
    const std::lock_guard lock(mutex_);
    if (message.at("type") == "lost") lost_ = message.at("why").get<std::string>();
    messages_.push_back(message);
  }
  std::optional<Json> Take() {
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    Json message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  // nullopt if the link is lost for good before, or all is over.
  std::optional<Json> Await(const std::string& type) {
    while (!Over()) {
      if (std::optional<Json> message = Take()) {
        if (message->at("type") == type) return message;
        if (message->at("type") == "lost") return std::nullopt;
        continue;
      }
      std::this_thread::sleep_for(kLook);
    }
    return std::nullopt;
  }

  const JoinOptions& options_;
  Endpoint endpoint_;
  bool over_ = false;
  std::mutex mutex_;  // guards the two below
  std::deque<Json> messages_;
  std::string lost_;
};

std::string TokenFrom(const std::string& token_file) {
  std::string token;
  if (!token_file.empty()) {
    struct stat status {};
    if (stat(token_file.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
      throw Error(
          Fault::kUsage,
          fmt::format("--token-file {}: others may read it; chmod 600 it, and start the run "
                      "anew, since its token is known",
                      Printable(token_file)));
    token = ReadSmallFile(token_file, 65536);
    // join.json of a run will do.
    if (const Json json = Json::parse(token, nullptr, false); json.is_object())
      token = json.value("token", std::string());
  } else if (const char* given = std::getenv("TILERY_TOKEN"); given != nullptr) {
    token = given;
  }
  const auto end = token.find_last_not_of(" \t\r\n");
  token.erase(end == std::string::npos ? 0 : end + 1);
  if (token.size() == 64 && token.find_first_not_of("0123456789abcdef") == std::string::npos)
    return token;
  throw Error(
      Fault::kUsage,
      "the run's token is needed: 64 hex digits in the environment variable TILERY_TOKEN, or "
      "--token-file FILE (the run's WORK/join.json will do)");
}

}  // namespace

int Join(const JoinOptions& options) { return Host(options).Run(); }

JoinOptions JoinOptionsFrom(const std::string& target, const std::string& token_file) {
  JoinOptions options;
  std::error_code error;
  const auto colon = target.rfind(':');
  const std::string port = colon == std::string::npos ? "" : target.substr(colon + 1);
  const bool is_port = !port.empty() && port.size() <= 5 &&
                       port.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoi(port) > 0 && std::stoi(port) < 65536;
  if (fs::is_directory(target, error) || !is_port) {
    if (!token_file.empty())
      throw Error(Fault::kUsage, "--token-file goes with HOST:PORT; a work folder has the token");
    options.work = fs::absolute(target);
    return options;
  }
  std::string host = target.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  options.meeting = Meeting{AddressesOfName(host), static_cast<uint16_t>(std::stoi(port)),
                            TokenFrom(token_file), 0};
  return options;
}

}  // namespace tilery
