#include "pipeline/codec/grid_fit.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pipeline/codec/grid_pieces.h"
#include "pipeline/codec/grid_regions.h"
#include "pipeline/codec/leaf_values.h"
#include "pipeline/codec/vq_region.h"

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

// Without a bound: steps of the range that do not matter beside what codes are off by, and the
// error that codes are to reach, in these: 2 % of the range, root mean square.
constexpr double kFineSteps = 1 << 14, kFineGoal = kFineSteps / 50;
// With one: what codes leave is told anyhow, so that few do.
constexpr double kBoundGoal = 2;
constexpr int kBoundStages = 2;

// Sets bound and step. A step is a little less than twice the bound, for what rounding to the
// numbers' own type adds.
void SetBound(const GridSurvey& range, const GridBound& wanted, RegionCoding* coding) {
  coding->bound = coding->step = 0;
  if (wanted.kind == GridBound::Kind::kExact || !(range.most > range.least)) return;
  const double span = range.most - range.least;
  const bool none = wanted.kind == GridBound::Kind::kNone;
  const double bound = none                                        ? span / (2 * kFineSteps)
                       : wanted.kind == GridBound::Kind::kAbsolute ? wanted.value
                                                                   : wanted.value * span;
  const double largest = std::max(std::abs(range.least), std::abs(range.most));
  const double rounding = coding->half                           ? std::ldexp(largest, -12)
                          : coding->numbers.dtype == DType::kF32 ? std::ldexp(largest, -25)
                                                                 : std::ldexp(largest, -54);
  const double step = none ? 2 * bound : 2 * (bound * (1 - 1e-6) - rounding);
  // Where rounding is most of the bound, or numbers would become too large, all is exact.
  if (!(step > bound) || largest / step > kLargestCodedValue) return;
  coding->bound = none ? 0 : bound;
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

// What is found in some regions all over a grid.
struct Fits {
  std::vector<WeightsFit> weights, residual;
  std::optional<ContextFit> contexts;
  SomeBlocks some;

  Fits(size_t of_numbers, size_t of_residual) : weights(of_numbers), residual(of_residual) {}
  static void Add(const BlockNumbers& block, std::vector<WeightsFit>* fits) {
    for (size_t c = 0; c < fits->size(); ++c) {
      (*fits)[c].BeginBlock();
      for (size_t leaf = 0; leaf < block.places.size(); ++leaf)
        (*fits)[c].Add(block.places[leaf], block.masks[leaf], block.values[c][leaf]);
    }
  }
};

// What codes leave of the blocks that some regions hold: of one in each.
void FitResidual(std::span<const BlockNumbers> blocks, RegionCoding coding, const GridWork& work,
                 Fits* fits) {
  if (blocks.empty()) return;
  const BlockNumbers& block = blocks[blocks.size() / 2];
  coding.bound = 0;  // codes alone
  VqCpu cpu;
  const std::vector<VqBlock> codes = EncodeVq(
      std::span(&block, 1), coding, work.devices.codes != nullptr ? *work.devices.codes : cpu);
  BlockNumbers residual = block;
  for (size_t c = 0; c < residual.values.size(); ++c) {
    for (size_t leaf = 0; leaf < residual.places.size(); ++leaf) {
      ForOn(residual.masks[leaf], [&](size_t voxel) {
        int32_t& number = residual.values[c][leaf][voxel];
        number = vq::Clamp(int64_t{number} - codes[0].restored.values[c][leaf][voxel],
                           -kLargestCodedValue, kLargestCodedValue);
      });
    }
  }
  Fits::Add(residual, &fits->residual);
}

// How whole numbers are coded: what predicts best in regions all over the grid.
void FitCoding(const VdbFile& file, const VdbGrid& grid, const GridSurvey& range,
               const GridWork& work, RegionCoding* coding) {
  const auto components = static_cast<size_t>(coding->numbers.components);
  // Whole numbers matter unless all leaves are codes.
  const bool numbers = !coding->vq || coding->vq->where_smaller;
  const bool residual = coding->vq && coding->bound > 0;
  Fits fits(numbers ? components : 0, residual ? components : 0);
  if (numbers && components <= kContextComponents) fits.contexts.emplace(components, range.voxels);
  const int64_t every = std::max<int64_t>(1, (range.regions + kFittedRegions - 1) / kFittedRegions);
  RegionReader reader(file, grid);
  int64_t index = 0;
  for (Region region; (numbers || residual) && reader.Next(&region); ++index) {
    work.Step(region);
    if (index % every != 0) continue;
    const std::vector<BlockNumbers> blocks = NumbersOf(region, *coding, nullptr).blocks;
    for (const BlockNumbers& block : blocks) {
      Fits::Add(block, &fits.weights);
      if (fits.contexts) fits.contexts->Add(block);
      fits.some.Add(block);
    }
    if (residual) FitResidual(blocks, *coding, work, &fits);
  }
  for (const WeightsFit& fit : fits.residual) coding->vq->residual.push_back(fit.Weights());
  if (!numbers) {
    coding->weights.resize(components);
    return;
  }
  for (const WeightsFit& fit : fits.weights) coding->weights.push_back(fit.Weights());
  if (fits.contexts) coding->contexts = fits.contexts->Components();
  if (fits.contexts && ContextIsSmaller(fits.some.blocks(), range.voxels, *coding)) {
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
                     const GridBounds& wanted, const GridWork& work) {
  RegionCoding coding;
  GridBound bound = wanted.For(grid);
  GridMethod method = wanted.method;
  coding.numbers = *VdbNumbersOf(grid.type);
  coding.half = grid.half;
  coding.background = range.background;
  const bool level_set = IsLevelSet(grid) && coding.numbers.components == 1;
  // Signs are kept within a bound only.
  if (bound.kind == GridBound::Kind::kNone && (level_set || method != GridMethod::kVq)) {
    bound = {};
    method = GridMethod::kBounded;
  }
  SetBound(range, bound, &coding);
  if (level_set) {
    const double limit = LevelSetLimit(coding);
    // Where values lie beyond the background, it is no narrow band: nothing to keep within.
    if (std::max(std::abs(range.least), std::abs(range.most)) <= limit) coding.limit = limit;
  }
  if (method != GridMethod::kBounded && coding.step > 0) {
    VqCoding& vq = coding.vq.emplace();
    vq.goal = coding.bound == 0 ? VqGoal{kFineGoal * kFineGoal, kVqStages}
                                : VqGoal{kBoundGoal * kBoundGoal, kBoundStages};
    vq.where_smaller = method == GridMethod::kAuto;
    vq.least = static_cast<int32_t>(std::nearbyint(range.least / coding.step));
    vq.most = static_cast<int32_t>(std::nearbyint(range.most / coding.step));
  }
  FitCoding(file, grid, range, work, &coding);
  return coding;
}

void LeafSamples(const VdbFile& file, const GridBounds& bounds, const LeafSample& sample) {
  for (const VdbGrid& grid : file.grids()) {
    if (!VdbNumbersOf(grid.type) || !grid.twin_of.empty()) continue;
    const GridSurvey range = SurveyOf(file, grid, {});
    if (!(range.most > range.least)) continue;
    const RegionCoding coding = FitGrid(file, grid, range, bounds, {});
    if (coding.step == 0) continue;
    RegionReader reader(file, grid);
    for (Region region; reader.Next(&region);) {
      for (const BlockNumbers& block : NumbersOf(region, coding, nullptr).blocks) {
        for (const auto& component : block.values) {
          for (size_t leaf = 0; leaf < component.size(); ++leaf)
            sample(block.masks[leaf], component[leaf], (range.most - range.least) / coding.step);
        }
      }
    }
  }
}

void ContextSamples(const VdbFile& file, const GridBounds& bounds,
                    const ContextCoder::Sample& sample) {
  for (const VdbGrid& grid : file.grids()) {
    const auto numbers = VdbNumbersOf(grid.type);
    if (!numbers || !grid.twin_of.empty() || numbers->components > kContextComponents) continue;
    const GridSurvey range = SurveyOf(file, grid, {});
    if (!(range.most > range.least)) continue;
    RegionCoding coding = FitGrid(file, grid, range, bounds, {});
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
