// How a run's model goes onto its GPUs: in which precision, layout and batch, compiled or as it is.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/devices.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"
#include "scheduler/tuning_client.h"

namespace tilery {

struct GpuChoice {
  Numerics numerics;              // complete
  bool graph = true;              // replay CUDA graphs
  std::filesystem::path package;  // in the work folder; empty: the model as it is
  Json report;                    // of profile.json: what was found; null if that is not known
};

// The work folder's own record where it fits the job: what a run began, the next one goes on with.
// Else a worker finds out (scheduler/tuning_client.h), in the precision of PrecisionOf() or, if
// that is further from fp32 than model.max_error, in the next wider one. A model that would run for
// longer than compiling takes is compiled first; one that was compiled before is tried in any case.
// A package that wins is copied into the work folder. Of a model that runs only compiled
// (scheduler/compiled_model.h) the packages are measured, in a batch of the usual size.
//
// `device`: kind and Torch's version of the first seat. `say`: what happens, in lines for people.
// Errors as AskTuning, PrecisionOf, PackagesOf; Error(kOutput).
GpuChoice ChooseForGpu(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                       const ProbeAnswer& device, const std::filesystem::path& work,
                       const std::function<void(const std::string&)>& say,
                       std::vector<std::string>& warnings);

// A form that was named, not chosen.
struct NamedForm {
  int64_t batch = 1;
  std::string precision, layout;
  std::filesystem::path package;  // empty: the model as it is
  std::string package_hash;
};

// What a worker finds of that form alone, on values like a picture's: which slots of a batch are
// used, for one. `say` and errors as above.
Tuning MeasureNamed(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                    const ProbeAnswer& device, const NamedForm& form,
                    const std::function<void(const std::string&)>& say,
                    std::vector<std::string>& warnings);

// Keeps what was found for the reports of later runs, in WORK/tuning.json. Error(kOutput).
void KeepReport(const GpuChoice& choice, const std::filesystem::path& work);

// Bytes that each worker of a run may take of its GPU; 0: what is free.
int64_t MemoryOfWorker(const Job& job, const DeviceChoice& devices);

// The file in the work folder that a record's package is kept in.
std::filesystem::path PackageFile(const std::filesystem::path& work, const std::string& hash);
// Copies `package`, of that hash, there. Error(kOutput).
void KeepPackage(const std::filesystem::path& package, const std::string& hash,
                 const std::filesystem::path& work);

}  // namespace tilery
