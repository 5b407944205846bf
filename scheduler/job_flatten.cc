// Nested maps become dotted keys, each checked against the table.
#include <set>

#include "io/error.h"
#include "scheduler/job_value.h"

namespace tilery {
namespace {

// Names that may stand directly below `prefix`.
std::vector<std::string> NamesBelow(const std::string& prefix, bool (*allowed)(const JobKey&)) {
  std::set<std::string> names;
  for (const JobKey& key : JobKeys()) {
    const std::string_view full(key.key);
    if (!allowed(key) || full.substr(0, prefix.size()) != prefix) continue;
    const std::string_view rest = full.substr(prefix.size());
    names.emplace(rest.substr(0, rest.find('.')));
  }
  return {names.begin(), names.end()};
}

// The key meant by `name` below `prefix`: a near name there, or the same name elsewhere in the job.
std::string Suggestion(const std::string& name, const std::string& prefix,
                       bool (*allowed)(const JobKey&)) {
  for (const JobKey& key : JobKeys()) {
    const std::string full(key.key);
    if (allowed(key) && full.size() > name.size() && full.ends_with("." + name)) return full;
  }
  const std::string near = NearestWord(name, NamesBelow(prefix, allowed));
  return near.empty() ? "" : prefix + near;
}

}  // namespace

void Flatten(const JobValue& value, const std::string& prefix, bool (*allowed)(const JobKey&),
             FlatJob& into) {
  if (value.kind == JobValue::Kind::kNull) return;
  if (value.kind != JobValue::Kind::kMap) {
    const std::string what = prefix.empty() ? "a job" : prefix.substr(0, prefix.size() - 1);
    std::string names;
    for (const std::string& name : NamesBelow(prefix, allowed)) {
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(Fault::kUsage, value.where + ": " + what + " must be a map of keys (" + names +
                                   "), not '" + Shown(value) + "'");
  }
  for (const auto& [name, child] : value.entries) {
    const std::string full = prefix + name;
    const JobKey* key = FindJobKey(full);
    if (key != nullptr && allowed(*key)) {
      if (IsLater(*key)) {
        throw Error(Fault::kUsage, child.where + ": '" + full + "' is not supported yet");
      }
      if (child.kind == JobValue::Kind::kNull) {
        RefuseValue(child, full, "has no value");
      }
      if (!into.emplace(full, child).second) {
        RefuseValue(child, full, "is given twice (first at " + into[full].where + ")");
      }
      continue;
    }
    const std::vector<std::string> below = NamesBelow(full + ".", allowed);
    if (!below.empty()) {
      Flatten(child, full + ".", allowed, into);
      continue;
    }
    const std::string near = Suggestion(name, prefix, allowed);
    std::string message = child.where + ": unknown key '" + Printable(full, 120) + "'";
    if (!near.empty()) {
      message += "; the nearest is '" + near + "'";
    } else {
      message += "; known here:";
      for (const std::string& known : NamesBelow(prefix, allowed)) message += " " + known;
    }
    throw Error(Fault::kUsage, message);
  }
}

}  // namespace tilery
