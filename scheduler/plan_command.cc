#include <fmt/format.h>

#include <iostream>

#include "cluster/message.h"
#include "io/error.h"
#include "scheduler/commands.h"
#include "scheduler/console.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"

namespace tilery {
namespace {

Json SpaceJson(const Index& shape, int dims) {
  Json out = Json::array();
  for (int a = 3 - dims; a < 3; ++a) out.push_back(shape[a]);
  return out;
}

// A picture's axes are y,x; a volume's z,y,x, also when a 2-D model runs on its slices.
int AxesOf(const Item& item) { return item.header.dims == 2 ? 2 : 3; }

Json ItemJson(const Plan& plan, const Item& item) {
  Json json = {{"input", Printable(item.input, 8192)},
               {"output", Printable(item.output, 8192)},
               {"shape", nullptr},
               {"output_shape", nullptr},
               {"tiles", item.tiles},
               {"units", item.units()},
               {"refused", nullptr}};
  if (!item.refused.empty()) {
    json["refused"] = Printable(item.refused, 4000);
    return json;
  }
  const Tiling& tiling = plan.params[item.params].tiling;
  Index output;
  for (int a = 0; a < 3; ++a) output[a] = tiling.scale[a].Ceil(item.header.shape[a]);
  json["shape"] = SpaceJson(item.header.shape, AxesOf(item));
  json["output_shape"] = SpaceJson(output, AxesOf(item));
  return json;
}

void PrintForPeople(const Job& job, const Prepared& prepared, int64_t batch) {
  const Resolved& r = prepared.resolved;
  int64_t refused = 0;
  for (const Item& item : r.plan.items) refused += item.refused.empty() ? 0 : 1;
  std::cout << fmt::format("job        {}\n", Printable(job.name));
  std::cout << fmt::format("model      {} ({})\n", Printable(prepared.model.path),
                           prepared.model.hash.substr(0, 12));
  for (const auto& [key, source] : r.contract.source)
    std::cout << fmt::format("  {:<18} {}\n", key, source);
  std::cout << fmt::format("items      {}, {} refused\n", r.plan.items.size(), refused);
  std::cout << fmt::format("tiles      {} of {} voxels, overlap {}, trim {}, {}\n", r.plan.tiles,
                           fmt::join(r.tile, "x"), fmt::join(r.overlap, "x"),
                           fmt::join(r.trim, "x"), r.exact ? "exact" : r.inexact_reason);
  std::cout << fmt::format("units      {}\n", r.plan.units);
  std::cout << fmt::format("batch      {}\n", batch);
  std::cout << fmt::format("work       {:.2f} voxels run per voxel\n", r.redundancy);
  std::cout << fmt::format("host       {} per worker (estimate)\n", BytesInWords(r.host_bytes));
  std::cout << fmt::format("scratch    {} at a time; seams of all items {}\n",
                           BytesInWords(r.scratch_bytes), BytesInWords(r.seam_bytes));
  std::cout << fmt::format("output     {} uncompressed\n", BytesInWords(r.output_bytes));
  size_t shown = 0;
  for (const Item& item : r.plan.items) {
    if (item.refused.empty()) continue;
    if (++shown > 20) {
      std::cout << fmt::format("and {} more refused\n", refused - 20);
      break;
    }
    std::cout << fmt::format("refused    {}: {}\n", Printable(item.input, 4096), item.refused);
  }
}

}  // namespace

int PlanCommand(const Job& job, const TakeDocument& take) {
  const Prepared prepared = Prepare(job, nullptr);
  const Resolved& r = prepared.resolved;
  for (const std::string& warning : prepared.warnings) std::cerr << "warning: " << warning << "\n";
  const auto& devices = job.execution.devices;
  if (!devices.empty() && devices[0] == "cpu") PrecisionOf(job, r.plan.params, false);
  const Tiling tiling = r.plan.params.empty() ? Tiling{} : r.plan.params[0].tiling;
  const ModelFile& model = prepared.model;
  const int64_t batch = job.execution.batch.value_or(
      model.kind == "package" ? FactsOfPackage(model.path).batch
                              : CpuBatch(tiling.tile, tiling.scale, job.execution.unit_memory));
  if (!take) {
    PrintForPeople(job, prepared, batch);
    return 0;
  }
  Json items = Json::array();
  for (const Item& item : r.plan.items) items.push_back(ItemJson(r.plan, item));
  Json contract = Json::object();
  for (const auto& [key, source] : r.contract.source) contract[key] = source;
  take({{"items", items},
        {"tiles", r.plan.tiles},
        {"units", r.plan.units},
        {"tile", r.tile},
        {"overlap", r.overlap},
        {"trim", r.trim},
        {"exact", r.exact},
        {"batch", batch},
        {"redundancy", r.redundancy},
        {"seam_bytes", r.seam_bytes},
        {"host_bytes", r.host_bytes},
        {"gpu_bytes", 0},
        {"scratch_bytes", r.scratch_bytes},
        {"output_bytes", r.output_bytes},
        {"contract", contract}});
  return 0;
}

}  // namespace tilery
