// Reads a model's contract from the file itself, without Torch: a TorchScript or .pt2 file is a
// zip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/job.h"
#include "scheduler/wire.h"

namespace tilery {

struct ModelFile {
  std::string path, hash,  // of the file
      kind;                // "torchscript", "exported" or "package"
  // From extra/tilery.json; empty if there is none. What a package was compiled for counts more.
  Contract contract;
  std::vector<OperatorLibrary> libraries;  // that are loaded before it, in this order

  // An exported program, or a compiled one: only what is compiled of it can be run.
  bool compiled_only() const { return kind != "torchscript"; }
  // What decides bytes: the hash of the file and, where there are libraries, of theirs.
  std::string Key() const;
};

// What is compiled already can't be compiled again.
enum class ModelUse : uint8_t { kRun, kCompile };

// Without libraries. Error(kUsage) if the file is missing, no model that can be used so, or its
// tilery.json is wrong (key and value named).
ModelFile ReadModelFile(const std::filesystem::path& path, ModelUse use = ModelUse::kRun);

// The job's model with its libraries. Errors as ReadModelFile, ReadLibraries.
ModelFile ReadModelOf(const Job& job);

// Hashes them. Error(kUsage) naming the first that can't be read.
std::vector<OperatorLibrary> ReadLibraries(const std::vector<std::string>& paths);
// Of their contents, in their order; "" if there are none.
std::string LibrariesHash(const std::vector<OperatorLibrary>& libraries);

// What a package says of itself, the JSON of its extra/tilery_package.json (its keys:
// tools/compile_model.py). nullopt for what is no whole package of that tool, or can't be read.
std::optional<std::string> ReadPackageFacts(const std::filesystem::path& path);

// The part of it that a run goes by.
struct PackageFacts {
  std::string gpu, capability, torch;
  std::vector<int64_t> tile;
  int64_t batch = 1;
  std::string precision, layout;
};
// Error(kUsage) naming the file if it says nothing, or something else.
PackageFacts FactsOfPackage(const std::filesystem::path& path);

// Contract keys of a tilery.json or of the job's `model:` map; `where` goes into messages and
// `source`.
Contract ContractFromJson(const std::string& json_text, const std::string& where);

// Job over file over probed over assumed, key by key. kLeave: nothing is assumed.
enum class MergeGaps : uint8_t { kAssume, kLeave };
Contract MergeContracts(const Contract& job, const Contract& file, const Contract& probed,
                        MergeGaps gaps = MergeGaps::kAssume);

}  // namespace tilery
