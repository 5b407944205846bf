#include "scheduler/probe_client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cluster/process.h"
#include "cluster/worker_start.h"
#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

Ran Run(const DeviceSeat& seat,
        const std::vector<std::pair<std::string, std::string>>& more_environment,
        const std::string& question) {
  auto environment = WorkerEnvironment();
  environment.insert(environment.end(), more_environment.begin(), more_environment.end());
  try {
    return RunToEnd({seat.executable, {"--probe"}, environment}, question);
  } catch (const Error& error) {
    throw Error(Fault::kUsage, error.what());  // the worker can't be executed
  }
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
  answer.apart = json.value("apart", answer.apart);
  answer.device_kind = json.at("numerics").at("device_kind");
  answer.torch = json.at("numerics").at("torch");
  return answer;
}

}  // namespace

int64_t ProbedExtent(int dims, int64_t multiple) { return RoundUp(dims == 2 ? 64 : 32, multiple); }

fs::path SelfExecutable() { return fs::read_symlink("/proc/self/exe"); }

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

Json AskChild(const ChildQuestion& question, const DeviceSeat& seat,
              std::vector<std::string>& warnings) {
  const fs::path& worker = seat.executable;
  const auto stamp = StampOf(worker);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const char* torch = getenv("TILERY_TORCH");
  const char* libraries = getenv("LD_LIBRARY_PATH");
  Json key = question.key;
  key["worker"] = {worker.string(), stamp ? stamp->mtime_ns : 0, stamp ? stamp->size : 0};
  if (!question.any_host) {
    key["host"] = host;  // homes are shared, and CPUs differ
    key["environment"] = question.environment;
  }
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
      if (StampOf(*cache / name)) {
        Json known = Json::parse(ReadSmallFile(*cache / name));
        if (question.sound(known)) return known;
      }
    } catch (const std::exception&) {
      // A damaged entry is asked for again and overwritten.
    }
  }
  const std::string asked =
      question.question.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const Ran child = Run(seat, question.environment, asked);
  if (child.ended.by_signal || child.ended.number != 0)
    throw Error(
        Fault::kUsage,
        fmt::format("{}{} --probe {}: {}\nIf it can't find LibTorch, name Torch's folder in "
                    "TILERY_TORCH.",
                    seat.name.empty() ? "" : seat.device + " (" + seat.name + "): ",
                    Printable(worker.string()),
                    child.ended.by_signal ? child.ended.words()
                                          : fmt::format("exit {}", child.ended.number),
                    LastLines(child.errors, 1500)));
  try {
    Json answer = Json::parse(child.output);
    if (cache && question.sound(answer)) {
      try {
        WriteFileAtomically(*cache / name, child.output, Durability::kRename);
      } catch (const Error& e) {
        Warn(std::string("cache not written: ") + e.what(), warnings);
      }
    }
    return answer;
  } catch (const nlohmann::json::exception& e) {
    throw NotUnderstood(seat, e);
  }
}

Error NotUnderstood(const DeviceSeat& seat, const std::exception& why) {
  return Error(Fault::kInternal, fmt::format("{} --probe: answer is not understood: {}",
                                             Printable(seat.executable.string()), why.what()));
}

ProbeAnswer AskWorker(const ProbeRequest& request, const DeviceSeat& seat,
                      std::vector<std::string>& warnings) {
  ChildQuestion question;
  question.question = {{"model", request.model}, {"libraries", request.libraries},
                       {"dims", request.dims},   {"channels_in", request.channels_in},
                       {"tile", request.tile},   {"device", seat.device}};
  if (request.batches) question.question["batches"] = true;
  question.key = question.question;
  // By content, not by where it lies; the libraries are in the hash.
  question.key["model"] = request.model_hash;
  question.key.erase("libraries");
  question.environment = seat.environment;
  // A trial run may fail for want of memory, say: that is no property of the model.
  question.sound = [&](const Json& json) { return FromAnswer(json).runs || request.model.empty(); };
  const Json answer = AskChild(question, seat, warnings);
  try {
    if (const std::string refused = answer.value("refused", std::string()); !refused.empty())
      throw Error(Fault::kUsage, refused);
    return FromAnswer(answer);
  } catch (const nlohmann::json::exception& e) {
    throw NotUnderstood(seat, e);
  }
}

}  // namespace tilery
