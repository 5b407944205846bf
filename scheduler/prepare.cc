#include "scheduler/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "cluster/numa.h"
#include "io/error.h"
#include "scheduler/grid_plan.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

// Identity of an input that the ledger has seen before: the first stamp, if nothing but times or
// inode has changed since and the content is the same.
void Recognise(InputHeader& input, const Ledger& ledger) {
  const auto known = ledger.FindInput(input.path);
  if (!known) return;
  if (known->stamp == input.stamp) {
    input.identity = known->identity;
  } else if (known->stamp.size == input.stamp.size && !known->content_hash.empty() &&
             input.error.empty()) {
    try {
      if (HashFile(input.path) == known->content_hash) input.identity = known->identity;
    } catch (const Error&) {
      // Its unit meets the same fault and fails alone.
    }
  }
}

// Items that are refused for their losses are read again each time.
void Remember(const std::vector<InputHeader>& inputs, bool allow_losses, Ledger& ledger) {
  for (const InputHeader& input : inputs) {
    if (!input.error.empty() || (!input.losses.empty() && !allow_losses)) continue;
    const auto known = ledger.FindInput(input.path);
    if (known && known->stamp == input.stamp && known->identity == input.identity) continue;
    const bool same = known && known->identity == input.identity;
    ledger.RecordInput(input.path, {input.stamp, input.identity, input.header,
                                    same ? known->content_hash : std::string()});
  }
}

std::vector<InputHeader> ReadHeadersOf(const Job& job, const std::vector<std::string>& paths,
                                       Ledger* ledger) {
  // Asked one by one rather than all at first: a job may have 100,000 inputs.
  std::mutex asking;  // the ledger is used by one thread at a time
  return ReadHeaders(
      paths, job.input.raw, FormatOfExtension(job.outputs[0].path), UsableCpus(),
      [&](const std::string& path, const FileStamp& stamp) -> const Header* {
        if (ledger == nullptr) return nullptr;
        thread_local Header header;  // copied before this thread asks again
        const std::lock_guard lock(asking);
        const auto known = ledger->FindInput(path);
        if (!known || known->stamp != stamp) return nullptr;
        header = known->header;
        return &header;
      },
      job.input.grids);
}

int NaturalDims(const std::vector<InputHeader>& inputs) {
  for (const InputHeader& input : inputs)
    if (input.error.empty()) return input.header.dims;
  return 2;
}

// Asks the model itself for what neither job nor file say.
Contract Probe(const Contract& said, const std::vector<InputHeader>& inputs, const ModelFile& model,
               std::vector<std::string>& warnings) {
  Contract probed;
  // A scale that nobody said is filled in by the merge, but it is the model that knows.
  const bool scale_said = said.source.at("scale") != "assumed";
  if (scale_said && said.channels_in && said.channels_out) return probed;
  if (model.compiled_only()) {
    throw Error(Fault::kUsage,
                fmt::format("{}: an exported program is compiled for what its contract says, and "
                            "that is not complete (scale, channels).\nSay model.scale and "
                            "model.channels in the job, or embed tilery.json "
                            "(tools/export_model.py does).",
                            Printable(model.path)));
  }
  ProbeRequest request;
  request.model = model.path;
  request.model_hash = model.Key();
  for (const OperatorLibrary& library : model.libraries) request.libraries.push_back(library.path);
  request.dims = said.dims.value_or(NaturalDims(inputs));
  request.channels_in = said.channels_in.value_or(0);
  for (int a = 3 - request.dims; a < 3; ++a) {
    int64_t multiple = 1;
    if (said.multiple)
      multiple = (*said.multiple)[said.multiple->size() == 1 ? 0 : a - (3 - request.dims)];
    request.tile[a] = ProbedExtent(request.dims, multiple);
  }
  const ProbeAnswer answer = AskWorker(request, CpuSeat(), warnings);
  if (!answer.runs)
    throw Error(
        Fault::kUsage,
        fmt::format("{}: its contract is not complete (scale, channels) and a trial run failed: "
                    "{}\nSay model.scale and model.channels in the job, or embed tilery.json.",
                    Printable(model.path), answer.error));
  probed.channels_in = answer.channels_in;
  probed.channels_out = answer.channels_out;
  probed.scale =
      std::vector<Rational>(answer.scale.begin() + (3 - request.dims), answer.scale.end());
  return probed;
}

}  // namespace

Contract CompleteContract(const Job& job, const ModelFile& model,
                          const std::vector<InputHeader>& inputs,
                          std::vector<std::string>& warnings) {
  const Contract said = MergeContracts(job.model.contract, model.contract, {});
  return MergeContracts(job.model.contract, model.contract, Probe(said, inputs, model, warnings));
}

int UsableCpus() {
  if (const CpuSet cpus = UsableCpuList(); !cpus.empty()) return static_cast<int>(cpus.size());
  return std::max(1u, std::thread::hardware_concurrency());
}

Prepared Prepare(const Job& job, Ledger* ledger) {
  Prepared prepared;
  const bool infer = job.task == Task::kInfer;
  if (infer) prepared.model = ReadModelOf(job);
  const std::vector<std::string> claimed =
      ledger ? std::vector<std::string>() : ReadClaimedOutputs(job.execution.work);
  std::vector<std::string> paths = ListInputs(job, [&](const std::string& path) {
    return ledger ? ledger->FindOutput(path).has_value()
                  : std::binary_search(claimed.begin(), claimed.end(), path);
  });
  std::vector<std::vector<VdbGrid>> grids;
  std::vector<InputHeader> inputs = infer ? ReadHeadersOf(job, paths, ledger)
                                          : ReadGridHeaders(job.task, paths, UsableCpus(), grids);
  if (ledger) {
    for (InputHeader& input : inputs) Recognise(input, *ledger);
    Remember(inputs, job.outputs[0].allow_losses, *ledger);
  }
  Contract contract;
  if (infer) {
    contract = CompleteContract(job, prepared.model, inputs, prepared.warnings);
    FindTilesOfGrids(job, contract, inputs, UsableCpus());
  }
  std::vector<std::string> outputs =
      job.task == Task::kMeasure ? RangeFiles(job, paths) : ExpandOutputs(job, paths);
  std::vector<std::string>().swap(paths);  // a job may have 100,000
  CheckOutputsAreNoInputs(inputs, outputs);
  prepared.resolved =
      infer ? MakePlan(job, contract, prepared.model.Key(), std::move(inputs), std::move(outputs))
            : PlanGrids(job, std::move(inputs), std::move(outputs), grids);
  for (const std::string& warning : prepared.resolved.warnings)
    prepared.warnings.push_back(warning);
  return prepared;
}

}  // namespace tilery
