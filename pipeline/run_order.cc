#include "pipeline/run_order.h"

namespace tilery {

RunOrder::RunOrder(const ItemGeometry& geometry, int64_t block, const Transfer& transfer)
    : grid_(geometry.grid()),
      box_(geometry.unit_tiles(block)),
      listed_(geometry.listed_tiles(block)),
      tiles_(geometry.tiles_of(block)),
      all_passes_(transfer.passes.size()) {
  for (size_t p = 0; p < all_passes_; ++p) {
    if (transfer.passes[p].op == Pass::Op::kModel) with_model_.push_back(p);
  }
}

Index RunOrder::TileAt(int64_t flat) const {
  if (!is_whole()) return grid_.tile_at(listed_[static_cast<size_t>(flat)]);
  const int64_t nx = box_.extent(2), ny = box_.extent(1);
  return {box_.begin[0] + flat / (nx * ny), box_.begin[1] + flat / nx % ny,
          box_.begin[2] + flat % nx};
}

RunOrder::Position RunOrder::At(int64_t run) const {
  return {TileAt(run / passes()), with_model_[run % passes()]};
}

std::vector<size_t> RunOrder::Before(int64_t run) const {
  const auto k = static_cast<size_t>(run % passes());
  std::vector<size_t> before;
  for (size_t p = k == 0 ? 0 : with_model_[k - 1] + 1; p < with_model_[k]; ++p) before.push_back(p);
  return before;
}

std::vector<size_t> RunOrder::After(int64_t run) const {
  std::vector<size_t> after;
  if (run % passes() + 1 < passes()) return after;
  for (size_t p = with_model_.back() + 1; p < all_passes_; ++p) after.push_back(p);
  return after;
}

}  // namespace tilery
