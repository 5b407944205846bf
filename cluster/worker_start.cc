#include "cluster/worker_start.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "io/error.h"

namespace tilery {
namespace {

constexpr size_t kMaxLine = 65536;

}  // namespace

std::string WorkerLogName(const std::string& worker) { return "worker-" + worker + ".log"; }

std::vector<std::pair<std::string, std::string>> WorkerEnvironment() {
  const char* torch = std::getenv("TILERY_TORCH");
  if (torch == nullptr || *torch == '\0') return {};
  std::error_code ignored;
  const std::filesystem::path folder(torch);
  std::string value =
      std::filesystem::is_directory(folder / "lib", ignored) ? folder / "lib" : folder;
  const char* before = std::getenv("LD_LIBRARY_PATH");
  if (before != nullptr && *before != '\0') value += std::string(":") + before;
  return {{"LD_LIBRARY_PATH", value}};
}

void WriteWorkerStart(int fd, const WorkerStart& start) {
  const std::string line = Json{{"host", start.endpoint.host}, {"port", start.endpoint.port},
                                {"token", start.token},        {"worker", start.worker},
                                {"device", start.device},      {"threads", start.threads},
                                {"epoch", start.epoch},        {"log", start.log},
                                {"program", start.program},    {"environment", start.environment},
                                {"cpus", start.cpus}}
                               .dump(-1, ' ', false, Json::error_handler_t::replace) +
                           "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t got = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Fault::kInternal, Errno("tell a child how to start", errno));
    sent += static_cast<size_t>(got);
  }
}

WorkerStart ReadWorkerStart(int fd) {
  std::string line;
  // Byte by byte: what follows the line belongs to others.
  for (char c = 0; line.size() < kMaxLine;) {
    const ssize_t got = read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Fault::kInternal, Errno("read how to start", errno));
    if (got == 0) throw Error(Fault::kInternal, "the parent ended before it said how to start");
    if (c == '\n') break;
    line += c;
  }
  try {
    const Json json = Json::parse(line);
    WorkerStart start;
    json.at("host").get_to(start.endpoint.host);
    json.at("port").get_to(start.endpoint.port);
    json.at("token").get_to(start.token);
    json.at("worker").get_to(start.worker);
    json.at("device").get_to(start.device);
    json.at("threads").get_to(start.threads);
    json.at("epoch").get_to(start.epoch);
    json.at("log").get_to(start.log);
    json.at("program").get_to(start.program);
    json.at("environment").get_to(start.environment);
    json.at("cpus").get_to(start.cpus);
    return start;
  } catch (const Json::exception& error) {
    // The text holds the token: it is not repeated.
    throw Error(Fault::kInternal,
                "the parent did not say how to start: exception " + std::to_string(error.id));
  }
}

void ReportReady(int fd) {
  const std::string line = "ready\n";
  while (send(fd, line.data(), line.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

void WatchParent(int fd) {
  std::thread([fd] {
    char ignored[256];
    for (;;) {
      const ssize_t got = read(fd, ignored, sizeof ignored);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) _exit(75);
    }
  }).detach();
}

}  // namespace tilery
