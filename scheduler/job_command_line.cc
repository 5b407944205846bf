#include "scheduler/job_command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "io/error.h"
#include "scheduler/job_keys.h"

namespace tilery {

JobCommand::JobCommand(CLI::App& parent, const std::string& name, const std::string& description,
                       const std::string& argument, const std::string& about,
                       const std::vector<std::string>& without_short) {
  app = parent.add_subcommand(name, description);
  app->add_option(argument, file, about);
  app->add_flag("--json", json, "one JSON document on one line of standard output");
  if (argument == "JOB")
    app->add_option("--stage", stage, "of a file of several jobs: the name or number of one");
  for (const JobKey& key : JobKeys()) {
    std::string names = fmt::format("--{}", key.key);
    const bool has_short =
        std::find(without_short.begin(), without_short.end(), key.key) == without_short.end();
    if (*key.flag && has_short) names += fmt::format(",--{}", key.flag);
    // A callback and no vector: for vectors CLI11 takes "[a]" and "{}" for lists, but files are
    // called so, too.
    CLI::Option* option = app->add_option(names, [](const CLI::results_t&) { return true; });
    option->group("")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    if (TakesManyValues(key))
      option->expected(1, 1 << 24);
    else
      option->expected(1);
    options.emplace_back(key.key, option);
  }
  app->allow_extras();
  app->footer("\nEvery key of a job file is also a flag:\n" + JobKeysHelp());
}

JobFlags JobCommand::Given() const {
  for (const std::string& word : app->remaining()) {
    if (word.rfind("--", 0) == 0) ResolveFlag(word.substr(2, word.find('=') - 2));
    throw Error(Fault::kUsage,
                fmt::format("{} is not expected here; tilery {} --help shows what is",
                            Printable(word), app->get_name()));
  }
  JobFlags flags;
  for (const auto& [key, option] : options)
    if (option->count() > 0) flags.emplace_back(key, option->results());
  return flags;
}

void JobCommand::RefuseNothing() const {
  throw Error(Fault::kUsage, fmt::format("tilery {}: name a job file, or give --model, --input and "
                                         "--output",
                                         app->get_name()));
}

Pipeline JobCommand::Load() const {
  const JobFlags flags = Given();
  if (file.empty() && flags.empty()) RefuseNothing();
  return LoadPipeline(file, flags, stage);
}

}  // namespace tilery
