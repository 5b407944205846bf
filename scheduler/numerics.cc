#include "scheduler/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "io/file.h"
#include "pipeline/batch_slots.h"

namespace tilery {
namespace {

using Json = nlohmann::json;

std::filesystem::path RecordFile(const std::filesystem::path& work) {
  return work / "numerics.json";
}

Json ToRecordJson(const NumericsRecord& record) {
  return {{"numerics_number", kNumericsNumber},
          {"model_hash", record.model_hash},
          {"device_kind", record.numerics.device_kind},
          {"torch", record.numerics.torch},
          {"tile", record.tile},
          {"batch", record.numerics.batch},
          {"slots", record.numerics.slots},
          {"layout", record.numerics.layout},
          {"precision", record.numerics.precision},
          {"package", record.numerics.package},
          {"intra_op_threads", 1}};
}

NumericsRecord FromRecordJson(const Json& json) {
  NumericsRecord record;
  record.model_hash = json.at("model_hash");
  record.numerics.device_kind = json.at("device_kind");
  record.numerics.torch = json.at("torch");
  record.tile = json.value("tile", record.tile);
  record.numerics.batch = json.at("batch");
  record.numerics.slots = json.value("slots", record.numerics.slots);
  record.numerics.layout = json.at("layout");
  record.numerics.precision = json.at("precision");
  record.numerics.package = json.value("package", std::string());
  return record;
}

// Of a file that holds one record; nullopt if it is missing. A damaged one is the caller's error.
std::optional<Json> ReadRecord(const std::filesystem::path& path, Fault fault) {
  if (!StampOf(path)) return std::nullopt;
  try {
    Json json = Json::parse(ReadSmallFile(path));
    FromRecordJson(json);
    return json;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fault, fmt::format("{}: not a numerics record ({}); remove it or name another with "
                                   "--numerics",
                                   Printable(path.string()), e.what()));
  }
}

// Refuses a record that this program would not follow to the letter.
void CheckMeetable(const Json& given, const NumericsRecord& record, const NumericsRecord& fresh,
                   const std::string& path) {
  const auto refuse = [&](const char* key, const Json& value, const std::string& allowed) {
    throw Error(Fault::kUsage,
                fmt::format("--numerics {}: {} is {}, but {} is what can be met here",
                            Printable(path), key, value.dump(), allowed));
  };
  Json wanted = ToRecordJson(fresh);
  // What may be chosen on a GPU. A package can't: the record does not hold it.
  if (record.numerics.device_kind.rfind("cuda/", 0) == 0) {
    for (const char* layout : {"nchw", "nhwc"})
      if (record.numerics.layout == layout) wanted["layout"] = layout;
    for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
      if (record.numerics.precision == precision) wanted["precision"] = precision;
  }
  if (record.numerics.batch < 1 || record.numerics.batch > kLargestBatch)
    refuse("batch", record.numerics.batch, fmt::format("1 to {}", kLargestBatch));
  try {
    static_cast<void>(BatchSlots(record.numerics.slots, record.numerics.batch));
  } catch (const Error& e) {
    throw Error(Fault::kUsage, fmt::format("--numerics {}: {}", Printable(path), e.what()));
  }
  for (const char* key :
       {"numerics_number", "layout", "precision", "package", "intra_op_threads"}) {
    const Json value = given.value(key, Json());
    if (value != wanted.at(key)) refuse(key, value, wanted.at(key).dump());
  }
}

}  // namespace

std::string NumericsRecord::Key() const { return HashText(ToRecordJson(*this).dump()); }

int64_t CpuBatch(const Index& tile, const Scale& scale, int64_t unit_memory) {
  int64_t input = 1, output = 1;
  for (int a = 0; a < 3; ++a) {
    input *= tile[a];
    output *= scale[a].Ceil(tile[a]);
  }
  const int64_t one = 32 * 4 * (input + output);
  int64_t batch = 1;
  while (batch < 8 && 2 * batch * one <= unit_memory / 4) batch *= 2;
  return batch;
}

std::string PrecisionOf(const Job& job, const std::vector<ItemParams>& params, bool gpu) {
  const std::string& word = job.model.precision;
  if (word != "auto") {
    if (!gpu && word != "fp32")
      throw Error(Fault::kUsage,
                  fmt::format("model.precision is {}, which needs a GPU; on the CPU models run in "
                              "fp32 (or auto)",
                              word));
    return word;
  }
  if (!gpu) return "fp32";
  const bool narrow = std::all_of(params.begin(), params.end(), [](const ItemParams& item) {
    const Transfer& t = item.transfer;
    return t.labels || t.out_dtype == DType::kU8 || t.out_dtype == DType::kI8 ||
           t.out_dtype == DType::kF16;
  });
  return narrow ? "fp16" : "tf32";
}

std::optional<NumericsRecord> KnownNumerics(const std::filesystem::path& work) {
  try {
    if (const auto json = ReadRecord(RecordFile(work), Fault::kInternal))
      return FromRecordJson(*json);
  } catch (const Error&) {
    // Whoever needs it to be sound says so.
  }
  return std::nullopt;
}

NumericsRecord DecideNumerics(const Job& job, const Resolved& resolved,
                              const std::string& model_hash, const Numerics& device,
                              const std::filesystem::path& work) {
  const std::string &device_kind = device.device_kind, &torch = device.torch;
  NumericsRecord fresh;
  fresh.model_hash = model_hash;
  fresh.numerics = device;
  const Tiling tiling = resolved.plan.params.empty() ? Tiling{} : resolved.plan.params[0].tiling;
  fresh.tile = tiling.tile;
  if (job.execution.batch)
    fresh.numerics.batch = *job.execution.batch;
  else if (fresh.numerics.batch == 0)
    fresh.numerics.batch = CpuBatch(tiling.tile, tiling.scale, job.execution.unit_memory);

  const std::filesystem::path kept = RecordFile(work);
  if (!job.execution.numerics_file.empty()) {
    const auto given = ReadRecord(job.execution.numerics_file, Fault::kUsage);
    if (!given)
      throw Error(Fault::kUsage, fmt::format("--numerics {}: no such file",
                                             Printable(job.execution.numerics_file)));
    NumericsRecord record = FromRecordJson(*given);
    if (record.model_hash != model_hash || record.numerics.device_kind != device_kind ||
        record.numerics.torch != torch)
      throw Error(
          Fault::kUsage,
          fmt::format("--numerics {}: made for model {} on {} with Torch {}; this run has model "
                      "{} on {} with Torch {}",
                      Printable(job.execution.numerics_file), record.model_hash,
                      record.numerics.device_kind, record.numerics.torch, model_hash, device_kind,
                      torch));
    CheckMeetable(*given, record, fresh, job.execution.numerics_file);
    fresh = record;
  }
  const auto old = ReadRecord(kept, Fault::kInternal);
  const Json wanted = ToRecordJson(fresh);
  if (old && *old != wanted) {
    // The record decides bytes, so what the old one made is not reused. A batch that differs is the
    // job's own doing (its tile, its unit_memory), all else is that of the machine or the program.
    // So are layout and package on the same tile.
    const bool same_tile = old->value("tile", Json()) == wanted.at("tile");
    const bool same_batch = same_tile && old->value("batch", Json()) == wanted.at("batch");
    const auto own_doing = [&](const std::string& key) {
      return key == "batch" || key == "tile" || (!same_batch && key == "slots") ||
             (!same_tile && (key == "layout" || key == "package"));
    };
    const bool same_model = old->at("model_hash") == wanted.at("model_hash");
    std::string differs;
    for (const auto& [key, value] : wanted.items())
      if (!own_doing(key) && (!old->contains(key) || old->at(key) != value))
        differs += fmt::format("{}{}: {} was {}", differs.empty() ? "" : ", ", key, value.dump(),
                               old->contains(key) ? old->at(key).dump() : "unset");
    if (same_model && !differs.empty() && job.execution.strict)
      throw Error(
          Fault::kUsage,
          fmt::format("execution.reproducible is strict and {} holds another numerics record "
                      "({}); use the same device and Torch, or another work folder",
                      Printable(kept.string()), differs));
    if (same_model && !differs.empty()) fresh.deviations.push_back(differs);
  }
  fresh.known = old && *old == wanted;
  return fresh;
}

void KeepNumerics(const NumericsRecord& record, const std::filesystem::path& work) {
  if (record.known) return;
  WriteFileAtomically(RecordFile(work), ToRecordJson(record).dump(1) + "\n", Durability::kFsync);
}

}  // namespace tilery
