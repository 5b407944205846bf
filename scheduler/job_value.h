// Values of a job before they have a type: what YAML, JSON or flags say, with where it stands.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/job.h"
#include "scheduler/job_keys.h"

namespace tilery {

struct JobValue {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap } kind = Kind::kNull;
  std::string text;                                       // kScalar
  std::vector<JobValue> items;                            // kList
  std::vector<std::pair<std::string, JobValue>> entries;  // kMap, in the order written
  std::string where;                                      // "job.yaml:7", "command line"
};

// Dotted key -> value, for all keys that were given.
using FlatJob = std::map<std::string, JobValue>;

// Error(kUsage) with file and line for what is no YAML, for duplicate keys and for nesting deeper
// than 32.
JobValue ParseYaml(const std::string& text, const std::string& name);
JobValue ParseYamlFile(const std::filesystem::path& path);
// A flag's values, as the key's type understands them.
JobValue FlagValue(const JobKey& key, const std::vector<std::string>& values);

// Checks keys against the table and dissolves maps. `prefix`: "" for a whole job, "model." for a
// contract; only keys for which `allowed` holds are known then.
void Flatten(const JobValue& value, const std::string& prefix, bool (*allowed)(const JobKey&),
             FlatJob& into);

// Typed values. All throw Error(kUsage) naming where, key, value and what is allowed.
[[noreturn]] void RefuseValue(const JobValue& value, const std::string& key,
                              const std::string& what);
std::string Shown(const JobValue& value);  // as people wrote it, shortened
std::string AsText(const JobValue& value, const JobKey& key);
std::vector<std::string> AsTexts(const JobValue& value, const JobKey& key);
std::string AsWord(const JobValue& value, const JobKey& key);
std::optional<int64_t> AsInteger(const JobValue& value, const JobKey& key);  // nullopt: a word
std::vector<int64_t> AsIntegers(const JobValue& value, const JobKey& key);
std::vector<double> AsNumbers(const JobValue& value, const JobKey& key);
std::array<double, 2> AsRange(const JobValue& value, const JobKey& key);
std::vector<Rational> AsScale(const JobValue& value, const JobKey& key);
int64_t AsMemory(const JobValue& value, const JobKey& key);
Extent AsExtent(const JobValue& value, const JobKey& key);
std::vector<PostOp> AsPost(const JobValue& value, const JobKey& key);  // order checked
struct Share {
  double share = 1;
  int64_t count = -1;  // -1: a share
};
Share AsShare(const JobValue& value, const JobKey& key);

}  // namespace tilery
