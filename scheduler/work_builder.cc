#include "scheduler/work_builder.h"

#include <algorithm>
#include <filesystem>

#include "io/error.h"
#include "scheduler/resume.h"

namespace tilery {
namespace {

constexpr int64_t kBricksInMessage = 1000;

}  // namespace

WorkBuilder::WorkBuilder(const Plan& plan, const WorkerContext& context, const Ledger& ledger,
                         int64_t epoch)
    : plan_(plan), context_(context), ledger_(ledger), epoch_(epoch) {
  for (const ItemParams& params : plan.params) {
    passes_.push_back(std::count_if(params.transfer.passes.begin(), params.transfer.passes.end(),
                                    [](const Pass& pass) { return pass.op == Pass::Op::kModel; }));
  }
}

UnitWork WorkBuilder::Build(const UnitQueue::Grant& grant) {
  const Item& item = plan_.items[static_cast<size_t>(grant.item)];
  UnitWork work;
  work.kind = grant.kind;
  work.item = grant.item;
  work.input = item.input;
  work.output = item.output;
  work.item_key = item.key;
  work.stamp = item.stamp;
  work.header = item.header;
  work.params = item.params;
  work.sizing = item.sizing;
  work.grid = item.grid.label;
  work.block = grant.block;
  work.whole = grant.kind == UnitKind::kInfer && item.infer_units == 1;
  if (grant.kind == UnitKind::kStage) {
    work.stage_file =
        item.key + "." + std::to_string(epoch_) + "." + std::to_string(grant.lease) + ".stage";
  } else if (grant.kind == UnitKind::kInfer && item.staged) {
    // A stage unit was left out if all bricks were there. Its file is then missing, which the
    // worker reports.
    const std::string& file = items_[grant.item].stage_file;
    work.stage_file = file.empty() ? item.key + ".none.stage" : file;
  }
  if (grant.kind == UnitKind::kInfer && !work.whole)
    work.brick_key = BrickKey(grant.item, grant.block);
  if (!work.grid.empty()) work.tiles = TilesOf({grant.item, grant.kind, grant.block});
  if (grant.kind == UnitKind::kAssemble) AddBricks(grant, work);
  return work;
}

void WorkBuilder::AddBricks(const UnitQueue::Grant& grant, UnitWork& work) {
  const int64_t index = grant.item;
  const Item& item = plan_.items[static_cast<size_t>(index)];
  for (int64_t block = 0; block < item.infer_units; ++block) {
    const std::string key = BrickKey(index, block);
    const auto record = ledger_.FindBrick(key);
    if (!record && grant.early) {
      ++work.bricks_missing;
      continue;
    }
    if (!record) {
      throw Error(Fault::kInternal, "the brick of block " + std::to_string(block) + " of " +
                                        Printable(item.input) + " is not in the ledger");
    }
    work.bricks.push_back({block, record->file, key});
  }
  if (item.infer_units <= kBricksInMessage) return;
  const std::string name = item.key + "." + std::to_string(epoch_) + ".list";
  // Absolute, since scratch need not lie in the work folder.
  work.bricks_file = (std::filesystem::path(context_.scratch) / name).string();
  WriteFileAtomically(work.bricks_file, BricksToText(work.bricks), Durability::kRename);
  work.bricks.clear();
  items_[index].bricks_file = name;
}

const ItemGeometry& WorkBuilder::Geometry(int64_t item) {
  auto& known = items_[item].geometry;
  if (!known) known = plan_.Geometry(item);
  return *known;
}

int64_t WorkBuilder::TilesOf(const UnitRef& ref) {
  if (ref.kind != UnitKind::kInfer) return 0;
  const Item& item = plan_.items[static_cast<size_t>(ref.item)];
  if (item.infer_units == 1) return item.tiles;
  return Geometry(ref.item).tiles_of(ref.block) * passes_[static_cast<size_t>(item.params)];
}

std::string WorkBuilder::BrickKey(int64_t item, int64_t block) const {
  return UnitKey(plan_.items[static_cast<size_t>(item)].key, context_.numerics_key, block);
}

std::string WorkBuilder::OutputKeyOf(int64_t item) const {
  return OutputKey(plan_.items[static_cast<size_t>(item)].key, context_.numerics_key);
}

int64_t WorkBuilder::tiles_done(int64_t item) const {
  const auto found = items_.find(item);
  return found == items_.end() ? 0 : found->second.tiles_done;
}

std::vector<std::string> WorkBuilder::Forget(int64_t item) {
  std::vector<std::string> files;
  const auto found = items_.find(item);
  if (found == items_.end()) return files;
  for (const std::string& file : {found->second.stage_file, found->second.bricks_file}) {
    if (!file.empty()) files.push_back(file);
  }
  items_.erase(found);
  return files;
}

}  // namespace tilery
