#include "scheduler/pipeline_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string>

#include "io/error.h"
#include "scheduler/grid_plan.h"
#include "scheduler/signals.h"
#include "scheduler/status.h"

namespace tilery {
namespace {

void Print(const Json& document) { std::cout << document.dump() << std::endl; }

TakeDocument Printer(bool json) { return json ? TakeDocument(Print) : nullptr; }

Json Named(const std::string& name, const Json& document) {
  Json named = {{"name", name}};
  named.update(document);
  return named;
}

// The documents of a run's stages, and what they come to together.
class Summaries {
 public:
  void Add(const std::string& stage, const Json& document) {
    constexpr std::array<std::string_view, 3> kStatus = {"done", "failed", "interrupted"};
    const auto rank = [&](const std::string& status) {
      return std::find(kStatus.begin(), kStatus.end(), status) - kStatus.begin();
    };
    for (const auto& [key, value] : document.items()) {
      Json& sum = all_[key];
      if (key == "work") {
        all_.erase(key);
      } else if (key == "status") {
        if (sum.is_null() || rank(value) > rank(sum)) sum = value;
      } else if (value.is_boolean()) {
        sum = (sum.is_null() || sum.get<bool>()) && value.get<bool>();
      } else if (value.is_number_integer()) {
        sum = (sum.is_null() ? 0 : sum.get<int64_t>()) + value.get<int64_t>();
      } else if (value.is_number()) {
        sum = (sum.is_null() ? 0.0 : sum.get<double>()) + value.get<double>();
      } else if (value.is_array()) {
        if (sum.is_null()) sum = Json::array();
        for (const Json& entry : value)
          sum.push_back(fmt::format("{}: {}", stage, entry.get<std::string>()));
      }
    }
    stages_.push_back(Named(stage, document));
  }
  void Interrupt() { all_["status"] = "interrupted"; }
  Json Document() const {
    Json document = all_;
    document["stages"] = stages_;
    return document;
  }

 private:
  Json all_ = Json::object(), stages_ = Json::array();
};

// What has to be measured first is measured by a job of its own, of which nobody is told but where
// it is the end.
int RunOne(const Job& job, const TakeDocument& take, const RunStage& run) {
  if (const auto measure = MeasureJobOf(job)) {
    const auto if_last = [&](const Json& document) {
      if (take && document.at("status") == "interrupted") take(document);
    };
    const int ended = run(*measure, if_last);
    if (ended != 0 && ended != kExitFailedItems) return ended;
  }
  return run(job, take);
}

}  // namespace

int RunPipeline(const Pipeline& pipeline, bool json, const RunStage& run_job) {
  const auto run = [&](const Job& job, const TakeDocument& take) {
    return RunOne(job, take, run_job);
  };
  if (!pipeline.several) return run(pipeline.stages[0].job, Printer(json));
  Summaries summaries;
  int code = 0;
  const size_t stages = pipeline.stages.size();
  for (size_t k = 0; k < stages; ++k) {
    const auto& [name, job] = pipeline.stages[k];
    if (code != 0 && pipeline.ordered && !InputsAreThere(job)) {
      std::cerr << fmt::format(
                       "stage {} has nothing to work on: the items it waits for have failed", name)
                << std::endl;
      break;
    }
    if (const std::string signal = DrainSignal(); k > 0 && !signal.empty()) {
      std::cerr << fmt::format("{}: stages not begun: {}; the same command goes on", signal,
                               stages - k)
                << std::endl;
      summaries.Interrupt();
      code = kExitInterrupted;
      break;
    }
    std::cerr << fmt::format("stage {}/{}: {}", k + 1, stages, name) << std::endl;
    const auto take = [&, &name = name](const Json& document) {
      summaries.Add(name, document);
      // It may be the last that this process does.
      if (json && document.at("status") == "interrupted") Print(summaries.Document());
    };
    const int ended = run(job, take);
    if (ended != 0) code = ended;
    if (ended == kExitInterrupted) return code;
    if (ended != 0 && ended != kExitFailedItems) break;
    if (ended != 0 && pipeline.ordered && job.stop_on_failed && k + 1 < stages) {
      std::cerr << fmt::format(
                       "stage {} has failed items and says on_failed: stop; stages not "
                       "run: {}",
                       name, stages - k - 1)
                << std::endl;
      break;
    }
  }
  if (json) Print(summaries.Document());
  return code;
}

int PlanPipeline(const Pipeline& pipeline, bool json) {
  if (!pipeline.several) return PlanCommand(pipeline.stages[0].job, Printer(json));
  Json stages = Json::array();
  for (size_t k = 0; k < pipeline.stages.size(); ++k) {
    const auto& [name, job] = pipeline.stages[k];
    const bool waits = pipeline.ordered && k > 0 && !InputsAreThere(job);
    if (!json) {
      std::cout << fmt::format("{}stage      {}{}\n", k == 0 ? "" : "\n", name,
                               waits ? ": no inputs yet; the stages before it write them" : "")
                << std::flush;
    }
    const auto take = [&, &name = name](const Json& document) {
      stages.push_back(Named(name, {{"plan", document}}));
    };
    if (waits)
      take(nullptr);
    else
      PlanCommand(job, json ? TakeDocument(take) : nullptr);
  }
  if (json) Print({{"stages", stages}});
  return 0;
}

int StatusOfPipeline(const Pipeline& pipeline, bool json) {
  if (!pipeline.several) return StatusCommand(pipeline.stages[0].job.execution.work, Printer(json));
  Json stages = Json::array();
  bool begun = false;
  std::string why;
  for (const auto& [name, job] : pipeline.stages) {
    try {
      stages.push_back(Named(name, ReadStatus(job.execution.work)));
      begun = true;
    } catch (const Error& error) {
      if (error.fault() != Fault::kUsage) throw;
      if (why.empty()) why = error.what();
      stages.push_back(Named(name, {{"state", "waiting"}}));
    }
  }
  if (!begun) throw Error(Fault::kUsage, why);
  if (json) {
    Print({{"stages", stages}});
    return 0;
  }
  for (size_t k = 0; k < stages.size(); ++k) {
    std::cout << fmt::format("stage {}: ", stages[k].at("name").get<std::string>()) << std::flush;
    if (stages[k].at("state") == "waiting")
      std::cout << "waiting" << std::endl;
    else
      StatusCommand(pipeline.stages[k].job.execution.work, nullptr);
  }
  return 0;
}

}  // namespace tilery
