#include "scheduler/compile_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "cluster/process.h"
#include "io/error.h"
#include "io/file.h"
#include "scheduler/model_file.h"
#include "scheduler/package_cache.h"
#include "scheduler/python_finder.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kLongestReason = 600;

template <typename Values>
std::string Joined(const Values& values, const char* between) {
  return fmt::format("{}", fmt::join(values, between));
}

std::string Line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return Printable(std::string(text), kLongestReason);
}

// A compiler's message in one line: its first one, and the first that speaks of an error.
std::string OneLine(const std::string& text) {
  const std::string first = text.substr(0, text.find('\n'));
  const size_t error = text.find("error:", first.size());
  if (error == text.npos) return Line(first);
  const size_t begin = text.rfind('\n', error) + 1;
  return Line(first + ": " + text.substr(begin, text.find('\n', error) - begin));
}

CompiledPackage FromFacts(const Json& facts, const fs::path& path) {
  CompiledPackage package;
  package.path = path;
  package.batch = facts.at("batch");
  package.precision = facts.at("precision");
  package.layout = facts.at("layout");
  package.tile = facts.at("tile").get<std::vector<int64_t>>();
  package.gpu = facts.at("gpu");
  package.capability = facts.at("capability");
  package.channels_in = facts.at("channels_in");
  package.channels_out = facts.at("channels_out");
  package.reused = facts.value("reused", true);
  package.seconds = facts.value("seconds", 0.0);
  return package;
}

class Compilation {
 public:
  Compilation(const CompileRequest& request, const std::function<void(const std::string&)>& say,
              const std::function<bool()>& stop)
      : request_(request), say_(say), stop_(stop), torch_(BuiltWithTorch()) {}

  // Error(kUsage) for what is refused.
  CompileResult Run() {
    std::vector<std::string> libraries;
    for (const fs::path& library : request_.libraries) libraries.push_back(library.string());
    libraries_hash_ = LibrariesHash(ReadLibraries(libraries));
    folder_ = request_.folder;
    name_ = request_.model.stem().string();
    if (folder_.empty()) {
      const auto cache = PackageFolder();
      if (!cache) {
        throw Error(Fault::kUsage,
                    "no folder for compiled packages: neither XDG_CACHE_HOME nor ~/.cache can be "
                    "written");
      }
      folder_ = *cache;
      name_ = PackageName(request_.model, request_.model_hash, torch_, libraries_hash_);
    }
    CompileResult result;
    if (FindAll(result.packages)) {
      Finish(result);
      return result;
    }
    if (request_.look_only) throw Error(Fault::kUsage, "not compiled yet");
    const fs::path tool = ToolScript("compile_model.py");
    const fs::path python = FindPython(torch_, stop_);
    result.python = python.string();
    Say(fmt::format("{}: torch {} of {}", Printable(request_.model.string()), torch_,
                    Printable(result.python)));
    Execute(python, tool, result);
    Finish(result);
    return result;
  }

 private:
  void Say(const std::string& line) const {
    if (say_) say_(line);
  }

  size_t Count() const {
    return request_.batches.size() * request_.precisions.size() * request_.layouts.size();
  }

  // The packages of the request, if all are there; asks nobody.
  bool FindAll(std::vector<CompiledPackage>& found) const {
    std::vector<int64_t> tile = request_.tile;
    if (tile.size() == 1 && request_.dims > 0) {
      tile.assign(static_cast<size_t>(request_.dims), tile[0]);
    }
    if (request_.device_name.empty() || request_.capability.empty() || tile.size() < 2) {
      return false;
    }
    std::string slug;  // as tools/compile_model.py makes it
    for (const char c : request_.device_name) {
      if (std::isalnum(static_cast<unsigned char>(c))) {
        slug += c;
      } else if (!slug.empty() && slug.back() != '-') {
        slug += '-';
      }
    }
    if (!slug.empty() && slug.back() == '-') slug.pop_back();
    Json options = Json::object();
    if (request_.device == "cpu") {
      options = {{"cpp.threads", 1}, {"aot_inductor.link_libtorch", false}};
    }
    if (request_.max_autotune) options["max_autotune"] = true;
    std::vector<CompiledPackage> packages;
    for (const int64_t batch : request_.batches) {
      for (const std::string& precision : request_.precisions) {
        for (const std::string& layout : request_.layouts) {
          const fs::path path = folder_ / fmt::format("{}.{}.{}.{}.{}.{}.pt2", name_, slug,
                                                      Joined(tile, "x"), batch, precision, layout);
          const Json wanted = {{"gpu", request_.device_name},
                               {"capability", request_.capability},
                               {"torch", torch_},
                               {"tile", tile},
                               {"batch", batch},
                               {"precision", precision},
                               {"layout", layout},
                               {"model_hash", request_.model_hash},
                               {"libraries", libraries_hash_},
                               {"options", options}};
          auto package = Find(path, wanted);
          if (!package) return false;
          packages.push_back(std::move(*package));
        }
      }
    }
    found = std::move(packages);
    return true;
  }

  static std::optional<CompiledPackage> Find(const fs::path& path, const Json& wanted) {
    const auto text = ReadPackageFacts(path);
    if (!text) return std::nullopt;
    try {
      const Json facts = Json::parse(*text);
      for (const auto& [key, value] : wanted.items()) {
        if (facts.at(key) != value) return std::nullopt;
      }
      return FromFacts(facts, path);
    } catch (const Json::exception&) {
      return std::nullopt;  // Python overwrites it
    }
  }

  SpawnSpec Command(const fs::path& python, const fs::path& tool) const {
    const bool cpu = request_.device == "cpu";
    SpawnSpec spec;
    spec.program = python;
    spec.own_group = true;
    const std::string device = request_.device_uuid.empty() || cpu ? request_.device : "cuda:0";
    spec.arguments = {tool.string(),
                      fs::absolute(request_.model).string(),
                      "--end-with-stdin",
                      "--out=" + folder_.string(),
                      "--name=" + name_,
                      "--tile=" + Joined(request_.tile, ","),
                      "--batches=" + Joined(request_.batches, ","),
                      "--precision=" + Joined(request_.precisions, ","),
                      "--layout=" + Joined(request_.layouts, ","),
                      "--device=" + device,
                      "--model-hash=" + request_.model_hash,
                      "--torch=" + torch_};
    if (request_.channels_in > 0) {
      spec.arguments.push_back(fmt::format("--channels={}", request_.channels_in));
    }
    for (const fs::path& library : request_.libraries) {
      spec.arguments.push_back("--library=" + library.string());
    }
    if (!libraries_hash_.empty()) {
      spec.arguments.push_back("--libraries-hash=" + libraries_hash_);
    }
    if (request_.max_autotune) spec.arguments.push_back("--max-autotune");
    // The scripts may lie where others look, too.
    spec.environment = {{"PYTHONDONTWRITEBYTECODE", "1"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};
    if (!cpu && !request_.device_uuid.empty()) {
      spec.environment.emplace_back("CUDA_VISIBLE_DEVICES", request_.device_uuid);
    }
    return spec;
  }

  void Execute(const fs::path& python, const fs::path& tool, CompileResult& result) const {
    std::string error;      // of its last line that is one
    std::string last_line;  // that says anything
    RunBounds bounds;
    bounds.limit = request_.limit * static_cast<int64_t>(Count());
    bounds.stop = stop_;
    bounds.hold_input = true;
    bounds.on_error_line = [&](const std::string& line) {
      if (line.find_first_not_of(" \t\r") != line.npos) last_line = line;
      const size_t at = line.find("error: ");
      if (at == 0 || line.starts_with("compile_model.py: error: ")) error = line.substr(at + 7);
      if (line.starts_with(name_ + ".")) Say(Line(line));
    };
    const Ran ran = RunToEnd(Command(python, tool), "", bounds);
    if (ran.by == Ran::By::kStop) {
      result.outcome = CompileResult::Outcome::kStopped;
      result.reason = "compiling was stopped";
      return;
    }
    if (ran.by == Ran::By::kLimit) {
      return Fail(result, fmt::format("compiling was given up after {:.0f} s",
                                      std::chrono::duration<double>(bounds.limit).count()));
    }
    if (!ran.ended.by_signal && ran.ended.number == 2) {
      throw Error(Fault::kUsage, Line(error.empty() ? last_line : error));
    }
    try {
      const Json report = Json::parse(ran.output);
      for (const Json& package : report.at("packages")) {
        result.packages.push_back(FromFacts(package, package.at("path").get<std::string>()));
      }
      for (const Json& failed : report.at("failed")) {
        const fs::path path = failed.at("path").get<std::string>();
        result.failed.push_back(
            {Printable(path.filename().string()), OneLine(failed.at("reason").get<std::string>())});
      }
    } catch (const Json::exception&) {
      result.packages.clear();
      result.failed.clear();
      return Fail(result, fmt::format("the compiler ended with {}: {}", ran.ended.words(),
                                      last_line.empty() ? "no word" : Line(last_line)));
    }
    if (!result.failed.empty()) {
      result.outcome = CompileResult::Outcome::kFailed;
      result.reason = result.failed[0].package + ": " + result.failed[0].reason;
    }
  }

  static void Fail(CompileResult& result, const std::string& reason) {
    result.outcome = CompileResult::Outcome::kFailed;
    result.reason = reason;
    result.failed.push_back({"", reason});
  }

  void Finish(CompileResult& result) const {
    std::set<fs::path> keep;
    for (CompiledPackage& package : result.packages) {
      package.hash = HashFile(package.path);
      if (package.reused) TouchPackage(package.path);
      keep.insert(package.path);
    }
    if (request_.folder.empty()) PrunePackages(folder_, kLargestPackageCache, keep);
  }

  const CompileRequest& request_;
  const std::function<void(const std::string&)>& say_;
  const std::function<bool()>& stop_;
  const std::string torch_;
  std::string libraries_hash_, name_;
  fs::path folder_;
};

}  // namespace

CompileResult CompilePackages(const CompileRequest& request,
                              const std::function<void(const std::string&)>& say,
                              const std::function<bool()>& stop) {
  try {
    return Compilation(request, say, stop).Run();
  } catch (const Error& e) {
    CompileResult result;
    result.outcome = e.fault() == Fault::kInternal ? CompileResult::Outcome::kFailed
                                                   : CompileResult::Outcome::kRefused;
    if (stop && stop()) result.outcome = CompileResult::Outcome::kStopped;
    result.reason = Line(e.what());
    return result;
  } catch (const fs::filesystem_error& e) {
    CompileResult result;
    result.outcome = CompileResult::Outcome::kRefused;
    result.reason = Line(e.what());
    return result;
  }
}

}  // namespace tilery
