// Reads a model's contract from the file itself, without Torch: a TorchScript or .pt2 file is a
// zip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "scheduler/job.h"

namespace tilery {

struct ModelFile {
  std::string path, hash,
      kind;           // "torchscript" or "exported"
  Contract contract;  // from extra/tilery.json; empty if there is none
};

// Exported programs can be compiled, but not run yet.
enum class ModelUse : uint8_t { kRun, kCompile };

// Error(kUsage) if the file is missing, no model that can be used so, or its tilery.json is wrong
// (key and value named).
ModelFile ReadModelFile(const std::filesystem::path& path, ModelUse use = ModelUse::kRun);

// What a package says of itself, the JSON of its extra/tilery_package.json (its keys:
// tools/compile_model.py). nullopt for what is no whole package of that tool, or can't be read.
std::optional<std::string> ReadPackageFacts(const std::filesystem::path& path);

// Contract keys of a tilery.json or of the job's `model:` map; `where` goes into messages and
// `source`.
Contract ContractFromJson(const std::string& json_text, const std::string& where);

// Job over file over probed over assumed, key by key.
Contract MergeContracts(const Contract& job, const Contract& file, const Contract& probed);

}  // namespace tilery
