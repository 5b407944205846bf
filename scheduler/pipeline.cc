#include "scheduler/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "io/error.h"
#include "scheduler/inputs.h"
#include "scheduler/job_filler.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

bool BelongsToOneJob(const std::string& key) {
  constexpr std::array<std::string_view, 5> kKeys = {"name", "model.path", "input.path",
                                                     "output.path", "execution.work"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

std::string NamesOf(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// The list of jobs with what stands beside it: nothing may.
const JobValue& ListOf(const JobValue& document, const char* key) {
  for (const auto& [name, value] : document.entries) {
    if (name == key) continue;
    throw Error(Fault::kUsage,
                fmt::format("{}: '{}' stands beside '{}'; each job says what it needs itself",
                            value.where, Printable(name, 80), key));
  }
  const JobValue& list = document.entries[0].second;
  if (list.kind != JobValue::Kind::kList || list.items.empty())
    RefuseValue(list, key, fmt::format("must be a list of jobs, not '{}'", Shown(list)));
  return list;
}

std::string NameOf(const JobValue& document, size_t index) {
  const JobValue* name = FindJobs(document, "name");
  return name == nullptr || name->text.empty() ? std::to_string(index + 1) : name->text;
}

Pipeline LoadSeveral(const JobValue& document, const char* key, const fs::path& file,
                     const JobFlags& flags, const std::string& wanted) {
  Pipeline pipeline;
  pipeline.file = file;
  pipeline.several = true;
  pipeline.ordered = std::string_view(key) == "stages";
  const JobValue& list = ListOf(document, key);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (size_t k = 0; k < list.items.size(); ++k) {
    names.push_back(NameOf(list.items[k], k));
    if (!seen.insert(names[k]).second)
      throw Error(Fault::kUsage, fmt::format("{}: two {} are called '{}'; give them other names",
                                             list.items[k].where, key, Printable(names[k], 80)));
  }
  const auto number = [](size_t k) { return std::to_string(k); };
  size_t only = names.size();
  for (size_t k = 0; k < names.size(); ++k)
    if (wanted == names[k] || (only == names.size() && wanted == number(k + 1))) only = k;
  if (!wanted.empty() && only == names.size())
    throw Error(Fault::kUsage, fmt::format("--stage {}: {} has no such stage; there are: {}",
                                           Printable(wanted, 80), Printable(file.string()),
                                           Printable(NamesOf(names), 1000)));
  const bool one = names.size() == 1 || !wanted.empty();
  for (const auto& [flag, values] : flags) {
    if (!one && BelongsToOneJob(ResolveFlag(flag)))
      throw Error(Fault::kUsage,
                  fmt::format("{}: --{} is for one job, and {} holds {}; choose with --stage: {}",
                              kFlagWhere, flag, Printable(file.string()), names.size(),
                              Printable(NamesOf(names), 1000)));
  }
  // All are looked at, also those not wanted: what is wrong in one is wrong in the file.
  for (size_t k = 0; k < names.size(); ++k) {
    const bool meant = wanted.empty() || k == only;
    Job job = FillJob(FlattenJob(list.items[k]), meant ? flags : JobFlags{}, file,
                      file.stem().string(), number(k + 1));
    if (meant) pipeline.stages.push_back({names[k], std::move(job)});
  }
  return pipeline;
}

}  // namespace

Pipeline LoadPipeline(const fs::path& file, const JobFlags& flags, const std::string& stage) {
  Pipeline pipeline;
  pipeline.file = file;
  if (!file.empty()) {
    const JobValue document = ParseYamlFile(file);
    for (const char* several : {"stages", "jobs"})
      if (FindJobs(document, several) != nullptr)
        return LoadSeveral(document, several, file, flags, stage);
  }
  if (!stage.empty())
    throw Error(Fault::kUsage,
                fmt::format("--stage {}: {} has no stages", Printable(stage, 80),
                            file.empty() ? "a job of flags" : Printable(file.string())));
  pipeline.stages.push_back({"", LoadJob(file, flags)});
  return pipeline;
}

bool InputsAreThere(const Job& job) {
  try {
    ListInputs(job, [](const std::string&) { return false; });
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::kUsage) throw;
    return false;
  }
}

}  // namespace tilery
