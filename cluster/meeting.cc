#include "cluster/meeting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "cluster/frame.h"
#include "cluster/process.h"
#include "io/container.h"
#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

struct Address {
  std::string interface, number;
  bool v4 = false, usual = false;  // usual: up, and neither loopback nor link-local
};

std::vector<Address> AllAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(Fault::kInternal, Errno("list the addresses of this host", errno));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
  std::vector<Address> all;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char number[NI_MAXHOST] = {};
    const auto size =
        static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (getnameinfo(at->ifa_addr, size, number, sizeof number, nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    Address address{at->ifa_name, number, family == AF_INET, false};
    const bool local = address.v4
                           ? address.number.starts_with("169.254.")
                           : IN6_IS_ADDR_LINKLOCAL(
                                 &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr);
    address.usual = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0 && !local;
    all.push_back(std::move(address));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Address& a, const Address& b) { return a.v4 && !b.v4; });
  return all;
}

// One attempt: connects, greets, and waits for the right welcome.
class Attempt {
 public:
  Attempt(const std::string& address, uint16_t port, const std::string& greeting) {
    out_ = greeting;
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
    socket_ = UniqueFd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.get() < 0) return;
    if (connect(socket_.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
      socket_.Reset();
  }

  pollfd Wanted() const {
    return {socket_.get(), static_cast<int16_t>(out_.empty() ? POLLIN : POLLOUT), 0};
  }
  bool over() const { return socket_.get() < 0; }

  // True once it was welcomed.
  bool Go(int64_t epoch) {
    if (!out_.empty()) {
      const ssize_t sent = send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
      if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) socket_.Reset();
      return false;
    }
    char chunk[4096];
    const ssize_t got = recv(socket_.get(), chunk, sizeof chunk, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      socket_.Reset();
      return false;
    }
    try {
      frames_.Append({chunk, static_cast<size_t>(got)});
      while (const auto body = frames_.Next()) {
        const Json message = DecodeBody(*body);
        if (message.at("type") != "welcome") continue;
        if (epoch == 0 || message.at("epoch") == epoch) return true;
        socket_.Reset();
        return false;
      }
    } catch (const std::exception&) {  // it is somebody else
      socket_.Reset();
    }
    return false;
  }

 private:
  UniqueFd socket_;
  std::string out_;  // not sent yet
  FrameReader frames_{kMaxHello};
};

}  // namespace

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::vector<std::string> AddressesOfHost(const std::string& wanted) {
  const bool any = wanted.empty() || wanted == "auto";
  std::vector<std::string> out;
  std::string there;
  for (const Address& address : AllAddresses()) {
    there += (there.empty() ? "" : ", ") + address.number + " (" + address.interface + ")";
    if (any ? address.usual : address.interface == wanted || address.number == wanted)
      out.push_back(address.number);
  }
  if (!out.empty()) return out;
  throw Error(Fault::kUsage, (any ? "this host has no address that others could reach"
                                  : "this host has neither an interface nor an address '" +
                                        Printable(wanted) + "'") +
                                 "; there are: " + Printable(there, 1000));
}

std::vector<std::string> AddressesOfName(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    throw Error(Fault::kUsage, "host '" + Printable(host) + "': " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  std::vector<std::string> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char number[NI_MAXHOST] = {};
    if (getnameinfo(at->ai_addr, at->ai_addrlen, number, sizeof number, nullptr, 0,
                    NI_NUMERICHOST) == 0)
      out.push_back(number);
  }
  return out;
}

std::optional<Endpoint> FindScheduler(const Meeting& meeting, double seconds) {
  const std::string greeting = EncodeFrame(
      {{"type", "hello"}, {"protocol", kProtocol}, {"token", meeting.token}, {"role", "look"}});
  std::vector<Attempt> attempts;
  attempts.reserve(meeting.addresses.size());
  for (const std::string& address : meeting.addresses)
    attempts.emplace_back(address, meeting.port, greeting);
  const auto until = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
  while (true) {
    std::vector<pollfd> fds;
    for (const Attempt& attempt : attempts) fds.push_back(attempt.Wanted());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const bool all_over = std::all_of(attempts.begin(), attempts.end(),
                                      [](const Attempt& attempt) { return attempt.over(); });
    if (all_over || left <= 0) return std::nullopt;
    poll(fds.data(), fds.size(), static_cast<int>(left));
    for (size_t k = 0; k < attempts.size(); ++k) {
      if (fds[k].revents == 0 || attempts[k].over()) continue;
      if (attempts[k].Go(meeting.epoch)) return Endpoint{meeting.addresses[k], meeting.port};
    }
  }
}

std::filesystem::path MeetingFile(const std::filesystem::path& work) { return work / "join.json"; }

void WriteMeeting(const std::filesystem::path& work, const Meeting& meeting) {
  WriteFileAtomically(MeetingFile(work), ToJson(meeting).dump() + "\n", Durability::kRename, 0600);
}

std::optional<Meeting> ReadMeeting(const std::filesystem::path& work) {
  const std::filesystem::path file = MeetingFile(work);
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw Error(Fault::kUsage, InFile(file, Errno("look at it", errno)));
  }
  if ((status.st_mode & 077) != 0) {
    throw Error(Fault::kUsage,
                InFile(file,
                       "others may read it, and with it the run's token; chmod 600 it, and "
                       "start the run anew"));
  }
  try {
    return MeetingFromJson(Json::parse(ReadSmallFile(file, 65536)));
  } catch (const Json::exception& error) {
    // The text holds the token: it is not repeated.
    throw Error(Fault::kUsage, InFile(file, "it is damaged (exception " + std::to_string(error.id) +
                                                "); start the run anew"));
  } catch (const Error& error) {
    // Else the run has ended meanwhile, or a network file system does not show all of it yet.
    if (access(file.c_str(), R_OK) == 0 || errno != EACCES) return std::nullopt;
    throw Error(Fault::kUsage, error.what());
  }
}

Json ToJson(const Meeting& meeting) {
  return {{"addresses", meeting.addresses},
          {"port", meeting.port},
          {"token", meeting.token},
          {"epoch", meeting.epoch}};
}

Meeting MeetingFromJson(const Json& json) {
  return {json.at("addresses").get<std::vector<std::string>>(), json.at("port").get<uint16_t>(),
          json.at("token").get<std::string>(), json.value("epoch", int64_t{0})};
}

}  // namespace tilery
