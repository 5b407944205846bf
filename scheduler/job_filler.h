// From dotted keys to the fields of a job: what the parts of the loader share.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "io/error.h"
#include "scheduler/job.h"
#include "scheduler/job_paths.h"
#include "scheduler/job_value.h"

namespace tilery {

inline constexpr const char* kFlagWhere = "command line";

// Finds values of the flat job and the folder that their paths count from.
class JobFiller {
 public:
  JobFiller(const FlatJob& flat, const std::set<std::string>& from_flags,
            const std::filesystem::path& file)
      : flat_(flat), from_flags_(from_flags), file_(file) {}

  const JobValue* Find(const std::string& name) const {
    const auto found = flat_.find(name);
    return found == flat_.end() ? nullptr : &found->second;
  }
  // Calls `take(value, key)` if the key was given.
  template <typename Take>
  void With(const std::string& name, Take take) const {
    if (const JobValue* value = Find(name)) take(*value, *FindJobKey(name));
  }
  std::string Path(const JobValue& value, const JobKey& key, const std::string& text) const {
    const bool flag = from_flags_.count(key.key) != 0;
    return ExpandPath(value, key, text,
                      flag || file_.empty() ? std::filesystem::current_path()
                                            : std::filesystem::absolute(file_).parent_path());
  }
  std::string PathOf(const JobValue& value, const JobKey& key) const {
    return Path(value, key, AsText(value, key));
  }
  [[noreturn]] void Missing(const std::string& key, const std::string& flag) const {
    throw Error(Fault::kUsage, (file_.empty() ? kFlagWhere : Printable(file_.string())) + ": " +
                                   key + " is missing (in flags: --" + flag + ")");
  }

 private:
  const FlatJob& flat_;
  const std::set<std::string>& from_flags_;
  const std::filesystem::path& file_;
};

template <typename Enum, size_t N>
Enum Named(const JobValue& value, const JobKey& key,
           const std::pair<const char*, Enum> (&names)[N]) {
  const std::string word = AsWord(value, key);
  for (const auto& [name, result] : names) {
    if (word == name) return result;
  }
  RefuseValue(value, key.key, "'" + word + "' is not supported yet");
}

// The steps of LoadJob, for whoever has the document already. `document`: one job as the user wrote
// it, no list of them. `stem`: what the job is called if it does not say so itself; `stage` is
// appended: a job's number among several, "" if it is alone. Error(kUsage).
FlatJob FlattenJob(const JobValue& document);
Job FillJob(FlatJob flat, const JobFlags& flags, const std::filesystem::path& file,
            const std::string& stem, const std::string& stage);

// The list of jobs in a document, nullptr if it is one job.
const JobValue* FindJobs(const JobValue& document, const char* key);

// Parts of the loader that have a file of their own. Error(kUsage).
void FillGrids(const JobFiller& from, const FlatJob& flat, Job& job);  // task and what it needs
void FillOutput(const JobFiller& from, Job& job);
// After FillOutput: the work folder lies beside the output.
void FillExecution(const JobFiller& from, Job& job);

}  // namespace tilery
