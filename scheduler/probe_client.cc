#include "scheduler/probe_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "io/file.h"

extern char** environ;

namespace tilery {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

struct ChildResult {
  int status = 0;
  std::string out, err;
};

// Feeds `input` to the child's standard input and collects what it prints, until it ends.
ChildResult RunChild(const std::vector<std::string>& argv, const std::string& input) {
  int to[2], out[2], err[2];
  if (pipe2(to, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
    throw Error(Fault::kInternal, Errno("pipe for " + argv[0], errno));
  // A request is far smaller than a pipe's buffer, so this never blocks; and it is written before
  // there is a child that could die, so that no SIGPIPE ends us.
  if (write(to[1], input.data(), input.size()) != static_cast<ssize_t>(input.size()))
    throw Error(Fault::kInternal, Errno("pipe for " + argv[0], errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  std::vector<char*> args;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  std::vector<std::string> variables;
  const char* torch = getenv("TILERY_TORCH");
  std::string path = torch ? std::string(torch) : std::string();
  if (torch && fs::is_directory(fs::path(torch) / "lib")) path += "/lib";
  for (char** e = environ; *e; ++e) {
    std::string variable = *e;
    if (torch && variable.rfind("LD_LIBRARY_PATH=", 0) == 0)
      path += ":" + variable.substr(strlen("LD_LIBRARY_PATH="));
    else
      variables.push_back(variable);
  }
  if (torch) variables.push_back("LD_LIBRARY_PATH=" + path);
  std::vector<char*> environment;
  for (std::string& v : variables) environment.push_back(v.data());
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, args.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]), close(out[1]), close(err[1]);
  if (failed) {
    close(to[1]), close(out[0]), close(err[0]);
    throw Error(Fault::kUsage, Errno("start " + Printable(argv[0]), failed));
  }
  close(to[1]);
  ChildResult result;
  pollfd polls[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  for (int open = 2; open > 0;) {
    if (poll(polls, 2, -1) < 0) {
      if (errno == EINTR) continue;  // `revents` says nothing now
      break;
    }
    for (int k = 0; k < 2; ++k) {
      if (polls[k].fd < 0 || !(polls[k].revents & (POLLIN | POLLHUP))) continue;
      char buffer[4096];
      const ssize_t n = read(polls[k].fd, buffer, sizeof buffer);
      if (n > 0) {
        if (texts[k]->size() < (1 << 20)) texts[k]->append(buffer, n);
      } else if (n == 0 || errno != EINTR) {
        close(polls[k].fd);
        polls[k].fd = -1;
        --open;
      }
    }
  }
  while (waitpid(pid, &result.status, 0) < 0 && errno == EINTR) {
  }
  return result;
}

std::string LastLines(const std::string& text, size_t limit) {
  std::string tail = text.size() > limit ? text.substr(text.size() - limit) : text;
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return Printable(tail, limit + 100);
}

// A run asks more than once; people are told once.
void Warn(const std::string& text, std::vector<std::string>& warnings) {
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.push_back(text);
}

ProbeAnswer FromAnswer(const Json& json) {
  ProbeAnswer answer;
  answer.runs = json.at("runs");
  answer.error = json.at("error");
  answer.channels_in = json.at("channels_in");
  answer.channels_out = json.at("channels_out");
  for (int a = 0; a < 3; ++a)
    answer.scale[a] = {json.at("scale").at(2 * a), json.at("scale").at(2 * a + 1)};
  answer.device_kind = json.at("numerics").at("device_kind");
  answer.torch = json.at("numerics").at("torch");
  return answer;
}

}  // namespace

fs::path SelfExecutable() { return fs::read_symlink("/proc/self/exe"); }

fs::path WorkerExecutable() {
  if (const char* given = getenv("TILERY_WORKER")) return given;
  const fs::path beside = SelfExecutable().parent_path() / "tilery-worker";
  if (access(beside.c_str(), X_OK) != 0)
    throw Error(Fault::kUsage, fmt::format("{}: {}; it belongs beside tilery, or name it in "
                                           "TILERY_WORKER",
                                           Printable(beside.string()), strerror(errno)));
  return beside;
}

std::optional<fs::path> CacheFolder() {
  fs::path base;
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg && *xdg)
    base = xdg;
  else if (const char* home = getenv("HOME"); home && *home)
    base = fs::path(home) / ".cache";
  else
    return std::nullopt;
  std::error_code failed;
  fs::create_directories(base / "tilery", failed);
  if (failed || access((base / "tilery").c_str(), W_OK) != 0) return std::nullopt;
  return base / "tilery";
}

ProbeAnswer AskWorker(const ProbeRequest& request, std::vector<std::string>& warnings) {
  const fs::path worker = WorkerExecutable();
  const Json question = {{"model", request.model},
                         {"dims", request.dims},
                         {"channels_in", request.channels_in},
                         {"tile", request.tile},
                         {"device", request.device}};
  const auto stamp = StampOf(worker);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const char* torch = getenv("TILERY_TORCH");
  const char* libraries = getenv("LD_LIBRARY_PATH");
  Json key = question;
  // The model by its content, not by where it lies; the host, since homes are shared and CPUs
  // differ.
  key["model"] = request.model_hash;
  key["worker"] = {worker.string(), stamp ? stamp->mtime_ns : 0, stamp ? stamp->size : 0};
  key["host"] = host;
  key["torch"] = {torch ? torch : "", libraries ? libraries : ""};
  const auto cache = CacheFolder();
  if (!cache)
    Warn(
        "no folder for caches: neither XDG_CACHE_HOME nor ~/.cache can be written; "
        "models are probed anew in every run",
        warnings);
  const std::string name =
      HashText(key.dump(-1, ' ', false, Json::error_handler_t::replace)) + ".probe.json";
  if (cache) {
    try {
      if (StampOf(*cache / name)) return FromAnswer(Json::parse(ReadSmallFile(*cache / name)));
    } catch (const std::exception&) {
      // A damaged entry is asked for again and overwritten.
    }
  }
  const ChildResult child =
      RunChild({worker.string(), "--probe"},
               question.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!WIFEXITED(child.status) || WEXITSTATUS(child.status) != 0)
    throw Error(
        Fault::kUsage,
        fmt::format("{} --probe {}: {}\nIf it can't find LibTorch, name Torch's folder in "
                    "TILERY_TORCH.",
                    Printable(worker.string()),
                    WIFEXITED(child.status) ? fmt::format("exit {}", WEXITSTATUS(child.status))
                                            : fmt::format("signal {}", WTERMSIG(child.status)),
                    LastLines(child.err, 1500)));
  try {
    const Json json = Json::parse(child.out);
    const ProbeAnswer answer = FromAnswer(json);
    // A trial run may fail for want of memory, say: that is no property of the model.
    if (cache && (answer.runs || request.model.empty())) {
      try {
        WriteFileAtomically(*cache / name, child.out, Durability::kRename);
      } catch (const Error& e) {
        Warn(std::string("cache not written: ") + e.what(), warnings);
      }
    }
    return answer;
  } catch (const nlohmann::json::exception& e) {
    throw Error(Fault::kInternal, fmt::format("{} --probe: answer is not understood: {}",
                                              Printable(worker.string()), e.what()));
  }
}

}  // namespace tilery
