#include "scheduler/inputs.h"

#include <algorithm>
#include <filesystem>

#include "io/error.h"
#include "scheduler/glob.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

// Files that systems and editors leave, and ours that are not finished.
bool IsHidden(const std::string& name) { return name.starts_with('.') || name == "Thumbs.db"; }

bool IsWithin(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.size() >= folder.size() && path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Whether a pattern's last component says the extension ("*.xyz"), so that unknown ones are meant.
bool NamesExtension(const std::string& pattern) {
  const std::string name = NameOf(pattern);
  const size_t dot = name.rfind('.');
  return dot != std::string::npos && dot + 1 < name.size() && !HasWildcards(name.substr(dot));
}

class Lister {
 public:
  Lister(const Job& job, const std::function<bool(const std::string&)>& is_output)
      : job_(job), is_output_(is_output) {}

  void List(const std::string& pattern) {
    std::string path = fs::path(pattern).lexically_normal().string();
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const size_t before = found_.size();
    const int64_t outputs_before = outputs_;
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);
    if (fs::is_directory(fs::status(path, error))) {
      for_folder_ = true;
      takes_unknown_ = false;
      WalkGlob(path + "/*", enter_, take_);
    } else if (fs::exists(status)) {
      found_.push_back(path);  // named: taken whatever it is, also a dangling link
      return;
    } else if (HasWildcards(path)) {
      for_folder_ = false;
      takes_unknown_ = NamesExtension(path) || job_.input.raw.has_value();
      WalkGlob(path, enter_, take_);
    } else {
      throw Error(Fault::kUsage,
                  "input.path " + Printable(path) + ": there is no such file or folder");
    }
    if (found_.size() == before) Nothing(path, outputs_ - outputs_before);
  }

  std::vector<std::string> Take() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  [[noreturn]] void Nothing(const std::string& pattern, int64_t outputs) const {
    std::string message = "input.path " + Printable(pattern) + ": ";
    message += for_folder_ ? "the folder holds no file of a known format (it is read flat; **/* "
                             "reads folders below it)"
                           : "no file matches";
    if (outputs > 0) {
      message += "; " + std::to_string(outputs) +
                 " file(s) were left out because they are outputs of this work folder (" +
                 Printable(job_.execution.work) + "); name them one by one to use them";
    }
    throw Error(Fault::kUsage, message);
  }

  bool HasKnownExtension(const std::string& path) const {
    const std::string wanted = InputExtension(job_.task);
    return wanted.empty() ? !FormatOfExtension(path).empty() : path.ends_with(wanted);
  }

  const Job& job_;
  const std::function<bool(const std::string&)>& is_output_;
  std::vector<std::string> found_;
  int64_t outputs_ = 0;
  bool for_folder_ = false;
  bool takes_unknown_ = false;
  std::function<bool(const std::string&)> enter_ = [this](const std::string& folder) {
    return NameOf(folder) != ".tilery" && !IsWithin(folder, job_.execution.work) &&
           !IsWithin(folder, job_.execution.scratch);
  };
  std::function<void(const std::string&)> take_ = [this](const std::string& path) {
    if (IsHidden(NameOf(path))) return;
    if (!takes_unknown_ && !HasKnownExtension(path)) return;
    if (is_output_ && is_output_(path)) {
      ++outputs_;
      return;
    }
    found_.push_back(path);
  };
};

}  // namespace

std::vector<std::string> ListInputs(const Job& job,
                                    const std::function<bool(const std::string&)>& is_output) {
  Lister lister(job, is_output);
  for (const std::string& pattern : job.input.paths) lister.List(pattern);
  return lister.Take();
}

}  // namespace tilery
