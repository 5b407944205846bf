// Scripts for batch queues, filled in from templates (configs/cluster/*.sh, which the program
// carries inside; any file can take their place).
//
// Sources: sbatch(1), scontrol(1), qsub(1B) of OpenPBS, bsub(1) of IBM Spectrum LSF.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilery {

// Word -> value; nullopt: it has none, and lines that hold it are left out.
using TemplateWords = std::map<std::string, std::optional<std::string>>;

// Puts values in the place of {{WORD}}. Error(kUsage) naming `name`, line and the words there are
// for one that is not known.
std::string FillTemplate(const std::string& text, const std::string& name,
                         const TemplateWords& words);

// The template that the program carries: "slurm", "slurm_array", "pbs", "lsf".
std::string_view CarriedTemplate(const std::string& name);

// One word of a shell, whatever it holds.
std::string ShellWord(const std::string& text);
std::string ShellWords(const std::vector<std::string>& words);

// What a job asks of its queue.
struct BatchRequest {
  std::string queue;  // "slurm", "pbs" or "lsf"
  int nodes = 1;
  // One-GPU workers, each a task of its own in an array of `workers`; unset: whole nodes.
  std::optional<int> workers;
  std::optional<int> gpus, cpus;   // per node; cpus unset: nodes of our own
  std::optional<int64_t> minutes;  // of the time limit; unset: the queue's
  int64_t grace_s = 120;           // before it, the run is asked to end
  std::string account, partition, memory;
  std::vector<std::string> lines;  // of shell, before all else
};

// What is run.
struct BatchJob {
  std::string name;  // for the queue
  std::filesystem::path folder, work, script, log;
  std::vector<std::string> run;     // command lines: of the scheduler,
  std::vector<std::string> worker;  // of a host that takes part (--wait is added),
  std::vector<std::string> status;  // of a look at it
  bool failed_is_fine = false;      // code 3 becomes 0
};

// The script, from the text of a template called `name`. Error(kUsage).
std::string BatchScript(const std::string& text, const std::string& name, const BatchJob& job,
                        const BatchRequest& request);

}  // namespace tilery
