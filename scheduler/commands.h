// The commands of `tilery`. Each returns the exit code: 0 all done, 1 internal, 2 usage or job
// file, 3 finished with failed items, 75 interrupted (run again to resume). Errors are thrown; main
// prints them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cluster/message.h"
#include "scheduler/job.h"
#include "scheduler/serve.h"

namespace tilery {

inline constexpr int kExitInternal = 1, kExitUsage = 2, kExitFailedItems = 3, kExitInterrupted = 75;

// Inside a catch clause: prints the error that was thrown, and returns its exit code.
int TellError();

// Takes the document of a command that was asked for --json; null: nobody asked, and what is for
// people is printed. Called at most once, of a run that ends early on a thread of its own, after
// which the process ends.
using TakeDocument = std::function<void(const Json&)>;

int RunCommand(const Job& job, const TakeDocument& take, const Crowd& crowd);
int PlanCommand(const Job& job, const TakeDocument& take);
int StatusCommand(const std::filesystem::path& work, const TakeDocument& take);
int VerifyCommand(const std::filesystem::path& work, bool json);
// Print where the finished files of a run lie; "report" or "trace".
int ArtefactCommand(const std::filesystem::path& work, const std::string& which);
int InspectCommand(const std::filesystem::path& file, bool json);
int DoctorCommand(bool json);

// As the user wrote them; empty: from the model's contract, or by the kind of device.
struct CompileFlags {
  std::string model, tile, batch, precision, layout, device, output;
  std::vector<std::string> libraries;
  bool max_autotune = false;
};
// 0: all packages are there; 1: the compiler failed; 75: interrupted. Error(kUsage) if there is
// something to put right first.
int CompileCommand(const CompileFlags& flags, bool json);

// "WORK|JOB": a work folder, or the work folder of a job file, in a file of several jobs that of
// `stage`. Error(kUsage) if it is neither.
std::filesystem::path WorkFolderOf(const std::string& work_or_job, const std::string& stage);

}  // namespace tilery
