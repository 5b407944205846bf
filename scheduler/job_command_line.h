// A command that takes a job: file, flags, or both. Every key of a job file is also a flag.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheduler/pipeline.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tilery {

struct JobCommand {
  CLI::App* app = nullptr;
  std::string file, stage;
  bool json = false;
  std::vector<std::pair<std::string, CLI::Option*>> options;  // by dotted key

  // `without_short`: keys whose short flag means something else to this command.
  JobCommand(CLI::App& parent, const std::string& name, const std::string& description,
             const std::string& argument = "JOB",
             const std::string& about = "job file (YAML); flags beat it",
             const std::vector<std::string>& without_short = {});

  JobFlags Given() const;                   // Error(kUsage) for words that are no flags of ours
  Pipeline Load() const;                    // Error(kUsage)
  [[noreturn]] void RefuseNothing() const;  // neither file nor flags were given
};

}  // namespace tilery
