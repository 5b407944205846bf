#include "scheduler/python_finder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cluster/process.h"
#include "io/error.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLimit{60};  // for an interpreter to start, from a slow disk too

// Prints the version of Torch that an import would give; the metadata of a package are read in
// milliseconds.
constexpr const char* kQuestion =
    "import importlib.metadata as m, importlib.util as u\n"
    "print(m.version('torch').split('+')[0] if u.find_spec('torch') else '')";

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

// PREFIX/lib/python3.N/site-packages/torch, perhaps with /lib behind it -> PREFIX/bin/python3
fs::path PythonOfTorch(fs::path torch) {
  if (!torch.has_filename()) torch = torch.parent_path();
  if (torch.filename() == "lib") torch = torch.parent_path();
  const fs::path packages = torch.parent_path();
  const std::string folder = packages.filename().string();
  if (torch.filename() != "torch" || !folder.ends_with("-packages")) return {};
  return packages.parent_path().parent_path().parent_path() / "bin/python3";
}

// "" if it has that Torch, else what it has instead.
std::string WhyNot(const fs::path& python, const std::string& torch,
                   const std::function<bool()>& stop) {
  RunBounds bounds;
  bounds.limit = kLimit;
  bounds.stop = stop;
  Ran ran;
  try {
    ran = RunToEnd({.program = python, .arguments = {"-c", kQuestion}, .own_group = true}, "",
                   bounds);
  } catch (const Error& e) {
    return std::string("can't be run: ") + e.what();
  }
  if (ran.by != Ran::By::kItself) return "did not answer";
  if (ran.ended.by_signal || ran.ended.number != 0) return "fails with " + ran.ended.words();
  std::string found = ran.output.substr(0, ran.output.find('\n'));
  if (found == torch) return "";
  return found.empty() ? "has no torch" : "has torch " + Printable(found, 40);
}

}  // namespace

std::string BuiltWithTorch() { return TILERY_BUILT_TORCH; }

fs::path ToolScript(const std::string& name) {
  if (const std::string given = Variable("TILERY_TOOLS"); !given.empty()) {
    return fs::path(given) / name;  // Python says what is wrong with it
  }
  const fs::path bundled = SelfExecutable().parent_path().parent_path() / "share" / "tilery" / name;
  const fs::path source = fs::path(TILERY_BUILT_TOOLS) / name;
  for (const fs::path& file : {bundled, source}) {
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  throw Error(Fault::kUsage,
              fmt::format("{} lies neither at {} nor at {}; unpack the whole archive of Tilery",
                          name, Printable(bundled.string()), Printable(source.string())));
}

fs::path FindPython(const std::string& torch, const std::function<bool()>& stop) {
  std::string found;
  std::vector<fs::path> asked;
  const auto fits = [&](const fs::path& python) {
    if (python.empty() || std::find(asked.begin(), asked.end(), python) != asked.end())
      return false;
    asked.push_back(python);
    const std::string why_not = WhyNot(python, torch, stop);
    if (why_not.empty()) return true;
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", Printable(python.string()), why_not);
    return false;
  };
  if (const std::string given = Variable("TILERY_PYTHON"); !given.empty()) {
    const fs::path python = FindOnPath(given);
    if (fits(python)) return python;
    throw Error(Fault::kUsage,
                fmt::format("TILERY_PYTHON: {}; models are compiled with torch {}: "
                            "pip install torch=={}, or name another Python",
                            found.empty() ? Printable(given) + " is not on the PATH" : found, torch,
                            torch));
  }
  for (const fs::path& python : {PythonOfTorch(Variable("TILERY_TORCH")),
                                 fs::path(TILERY_BUILT_PYTHON), FindOnPath("python3")}) {
    if (access(python.c_str(), X_OK) == 0 && fits(python)) return python;
  }
  throw Error(Fault::kUsage,
              fmt::format("models are compiled with torch {} of a Python, and there is none here "
                          "({}): pip install torch=={}, or name a Python that has it in "
                          "TILERY_PYTHON",
                          torch, found.empty() ? "no python3 on the PATH" : found, torch));
}

}  // namespace tilery
