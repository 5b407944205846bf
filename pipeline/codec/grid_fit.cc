#include "pipeline/codec/grid_fit.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pipeline/codec/grid_pieces.h"
#include "pipeline/codec/grid_regions.h"
#include "pipeline/codec/leaf_values.h"

namespace tilery {
namespace {

constexpr int64_t kFittedRegions = 64;  // at most so many decide a grid's weights

template <typename Use>
void ForActive(const Region& region, size_t bytes, const Use& use) {
  for (size_t leaf = 0; leaf < region.masks.size(); ++leaf) {
    ForOn(region.masks[leaf],
          [&](size_t voxel) { use(&region.values[(leaf * kVdbLeafVoxels + voxel) * bytes]); });
  }
}

void Add(const std::byte* value, const VdbNumbers& numbers, GridSurvey* range) {
  for (int c = 0; c < numbers.components; ++c) {
    const double number =
        VdbNumberAt(value + static_cast<size_t>(c) * DTypeSize(numbers.dtype), numbers.dtype);
    if (!std::isfinite(number)) continue;
    range->least = std::min(range->least, number);
    range->most = std::max(range->most, number);
  }
}
void AddActive(const VdbNode& node, const VdbNumbers& numbers, GridSurvey* range) {
  for (int place = node.active.NextOn(0); place >= 0; place = node.active.NextOn(place + 1))
    Add(&node.values[static_cast<size_t>(place) * numbers.bytes()], numbers, range);
}

// Sets bound and step. A step is a little less than twice the bound, for what rounding to the
// numbers' own type adds.
void SetBound(const GridSurvey& range, const GridBound& wanted, RegionCoding* coding) {
  coding->bound = coding->step = 0;
  if (wanted.kind == GridBound::Kind::kExact || !(range.most > range.least)) return;
  const double bound = wanted.kind == GridBound::Kind::kAbsolute
                           ? wanted.value
                           : wanted.value * (range.most - range.least);
  const double largest = std::max(std::abs(range.least), std::abs(range.most));
  const double rounding = coding->half                           ? std::ldexp(largest, -12)
                          : coding->numbers.dtype == DType::kF32 ? std::ldexp(largest, -25)
                                                                 : std::ldexp(largest, -54);
  const double step = 2 * (bound * (1 - 1e-6) - rounding);
  // Where rounding is most of the bound, or numbers would become too large, all is exact.
  if (!(step > bound) || largest / step > kLargestCodedValue) return;
  coding->bound = bound;
  coding->step = step;
}

bool IsLevelSet(const VdbGrid& grid) {
  return std::any_of(grid.metadata.begin(), grid.metadata.end(), [](const VdbMeta& meta) {
    return meta.name == "class" && meta.value == "level set";
  });
}

// Blocks all over a grid, a few: every 1st, 2nd, 4th ... so that memory is bounded.
class SomeBlocks {
 public:
  void Add(const BlockNumbers& block) {
    if (count_++ % every_ != 0) return;
    if (blocks_.size() == kMost) {
      for (size_t i = 1; i < kMost / 2; ++i) blocks_[i] = std::move(blocks_[2 * i]);
      blocks_.resize(kMost / 2);
      every_ *= 2;
      if ((count_ - 1) % every_ != 0) return;
    }
    blocks_.push_back(block);
  }
  const std::vector<BlockNumbers>& blocks() const { return blocks_; }

 private:
  static constexpr size_t kMost = 4;
  std::vector<BlockNumbers> blocks_;
  int64_t count_ = 0, every_ = 1;
};

// Under which of two codings the blocks are smaller, with what a grid has to tell of them.
bool ContextIsSmaller(const std::vector<BlockNumbers>& blocks, int64_t voxels,
                      const RegionCoding& coding) {
  RegionCoding adaptive = coding, context = coding;
  adaptive.contexts.clear();
  context.weights.clear();
  double adaptive_bytes = 0, context_bytes = 0;
  int64_t sampled = 0;
  for (const BlockNumbers& block : blocks) {
    adaptive_bytes += static_cast<double>(EncodeNumbers(block, adaptive).size());
    context_bytes += static_cast<double>(EncodeNumbers(block, context).size());
    for (const LeafMask& mask : block.masks) sampled += CountOn(mask);
  }
  if (sampled == 0) return false;
  const double scale =
      static_cast<double>(std::max(voxels, sampled)) / static_cast<double>(sampled);
  return context_bytes * scale + static_cast<double>(CodingBytes(context)) <
         adaptive_bytes * scale + static_cast<double>(CodingBytes(adaptive));
}

// How whole numbers are coded: what predicts best in regions all over the grid.
void FitCoding(const VdbFile& file, const VdbGrid& grid, const GridSurvey& range,
               const GridWork& work, RegionCoding* coding) {
  const auto components = static_cast<size_t>(coding->numbers.components);
  std::vector<WeightsFit> fits(components);
  std::optional<ContextFit> contexts;
  if (components <= kContextComponents) contexts.emplace(components, range.voxels);
  SomeBlocks some;
  const int64_t every = std::max<int64_t>(1, (range.regions + kFittedRegions - 1) / kFittedRegions);
  RegionReader reader(file, grid);
  int64_t index = 0;
  for (Region region; reader.Next(&region); ++index) {
    work.Step(region);
    if (index % every != 0) continue;
    for (const BlockNumbers& block : NumbersOf(region, *coding, nullptr).blocks) {
      for (size_t c = 0; c < components; ++c) {
        fits[c].BeginBlock();
        for (size_t leaf = 0; leaf < block.places.size(); ++leaf)
          fits[c].Add(block.places[leaf], block.masks[leaf], block.values[c][leaf]);
      }
      if (contexts) contexts->Add(block);
      some.Add(block);
    }
  }
  for (const WeightsFit& fit : fits) coding->weights.push_back(fit.Weights());
  if (contexts) coding->contexts = contexts->Components();
  if (contexts && ContextIsSmaller(some.blocks(), range.voxels, *coding)) {
    coding->weights.clear();
  } else {
    coding->contexts.clear();
  }
}

}  // namespace

GridSurvey SurveyOf(const VdbFile& file, const VdbGrid& grid, const GridWork& work) {
  GridSurvey range;
  const VdbNumbers numbers = *VdbNumbersOf(grid.type);
  RegionReader reader(file, grid, [&](const VdbNode& upper) { AddActive(upper, numbers, &range); });
  range.background = reader.tree().background();
  for (const VdbRootTile& tile : reader.tree().root_tiles()) {
    if (tile.active) Add(reinterpret_cast<const std::byte*>(tile.value.data()), numbers, &range);
  }
  for (Region region; reader.Next(&region); ++range.regions) {
    AddActive(region.node, numbers, &range);
    for (const LeafMask& mask : region.masks) range.voxels += CountOn(mask);
    ForActive(region, numbers.bytes(),
              [&](const std::byte* value) { Add(value, numbers, &range); });
    work.Step(region);
  }
  return range;
}

RegionCoding FitGrid(const VdbFile& file, const VdbGrid& grid, const GridSurvey& range,
                     const GridBound& wanted, const GridWork& work) {
  RegionCoding coding;
  coding.numbers = *VdbNumbersOf(grid.type);
  coding.half = grid.half;
  coding.background = range.background;
  SetBound(range, wanted, &coding);
  if (IsLevelSet(grid) && coding.numbers.components == 1) {
    const double limit = LevelSetLimit(coding);
    // Where values lie beyond the background, it is no narrow band: nothing to keep within.
    if (std::max(std::abs(range.least), std::abs(range.most)) <= limit) coding.limit = limit;
  }
  FitCoding(file, grid, range, work, &coding);
  return coding;
}

void ContextSamples(const VdbFile& file, const GridBounds& bounds,
                    const ContextCoder::Sample& sample) {
  for (const VdbGrid& grid : file.grids()) {
    const auto numbers = VdbNumbersOf(grid.type);
    if (!numbers || !grid.twin_of.empty() || numbers->components > kContextComponents) continue;
    const GridSurvey range = SurveyOf(file, grid, {});
    if (!(range.most > range.least)) continue;
    RegionCoding coding = FitGrid(file, grid, range, bounds.For(grid), {});
    ContextFit fit(static_cast<size_t>(numbers->components), range.voxels);
    for (const bool fitted : {false, true}) {
      if (fitted) coding.contexts = fit.Components();
      ContextCoder coder(coding.contexts);
      RegionReader reader(file, grid);
      for (Region region; reader.Next(&region);) {
        for (const BlockNumbers& block : NumbersOf(region, coding, nullptr).blocks) {
          if (fitted) {
            coder.Samples(block, sample);
          } else {
            fit.Add(block);
          }
        }
      }
    }
  }
}

}  // namespace tilery
