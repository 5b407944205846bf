#include "scheduler/plan.h"

#include <algorithm>

#include "io/error.h"

namespace tilery {
namespace {

bool SameLayout(const RawLayout& a, const RawLayout& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.channels == b.channels &&
         a.big_endian == b.big_endian && a.offset == b.offset;
}

bool SameHeader(const Header& a, const Header& b) {
  return a.format == b.format && a.dtype == b.dtype && a.dims == b.dims && a.alpha == b.alpha &&
         a.access == b.access && a.channels == b.channels && a.shape == b.shape;
}

}  // namespace

const char* UnitKindName(UnitKind kind) {
  switch (kind) {
    case UnitKind::kStage:
      return "stage";
    case UnitKind::kMeasure:
      return "measure";
    case UnitKind::kInfer:
      return "infer";
    case UnitKind::kAssemble:
      return "assemble";
    case UnitKind::kFinish:
      return "finish";
  }
  return "unknown";
}

int32_t ModelPasses(const Transfer& transfer) {
  return static_cast<int32_t>(
      std::count_if(transfer.passes.begin(), transfer.passes.end(),
                    [](const Pass& pass) { return pass.op == Pass::Op::kModel; }));
}

bool ItemParams::operator==(const ItemParams& other) const {
  return dims == other.dims && tiling == other.tiling && transfer == other.transfer &&
         SameHeader(output, other.output) && raw.has_value() == other.raw.has_value() &&
         (!raw || SameLayout(*raw, *other.raw)) && allow_losses == other.allow_losses &&
         grids == other.grids;
}

UnitRef Plan::Find(int64_t unit) const {
  if (unit < 0 || unit >= units) {
    throw Error(Fault::kInternal, "unit " + std::to_string(unit) + " of a plan of " +
                                      std::to_string(units) + " units");
  }
  // Items without units share their first_unit with the next item, so the last that begins at or
  // before `unit` is the one that holds it.
  const auto after =
      std::upper_bound(items.begin(), items.end(), unit,
                       [](int64_t n, const Item& item) { return n < item.first_unit; });
  const Item& item = *(after - 1);
  UnitRef ref;
  ref.item = after - 1 - items.begin();
  int64_t n = unit - item.first_unit;
  if (item.staged && n-- == 0) {
    ref.kind = UnitKind::kStage;
  } else if (n < item.infer_units) {
    ref.kind = UnitKind::kInfer;
    ref.block = n;
  } else {
    ref.kind = UnitKind::kAssemble;
  }
  return ref;
}

int64_t Plan::UnitOf(int64_t item_index, UnitKind kind, int64_t block) const {
  const Item& item = items.at(static_cast<size_t>(item_index));
  const int64_t infer = item.first_unit + (item.staged ? 1 : 0);
  const bool has = item.refused.empty() &&
                   ((kind == UnitKind::kStage && item.staged) ||
                    (kind == UnitKind::kInfer && block >= 0 && block < item.infer_units) ||
                    (kind == UnitKind::kAssemble && item.infer_units > 1));
  if (!has) {
    throw Error(Fault::kInternal, "item " + std::to_string(item_index) + " has no unit " +
                                      UnitKindName(kind) + " " + std::to_string(block));
  }
  if (kind == UnitKind::kStage) return item.first_unit;
  return kind == UnitKind::kInfer ? infer + block : infer + item.infer_units;
}

std::shared_ptr<const ItemGeometry> Plan::Geometry(int64_t item_index) const {
  const Item& item = items.at(static_cast<size_t>(item_index));
  const ItemParams& effective = params.at(static_cast<size_t>(item.params));
  return std::make_shared<const ItemGeometry>(item.header.shape, effective.tiling, item.sizing,
                                              item.grid.tiles);
}

int64_t Plan::TilesOf(int64_t unit) const {
  const UnitRef ref = Find(unit);
  if (ref.kind != UnitKind::kInfer) return 0;
  const Item& item = items[static_cast<size_t>(ref.item)];
  if (item.infer_units == 1) return item.tiles;
  return Geometry(ref.item)->tiles_of(ref.block) *
         ModelPasses(params[static_cast<size_t>(item.params)].transfer);
}

}  // namespace tilery
