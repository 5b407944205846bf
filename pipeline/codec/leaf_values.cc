#include "pipeline/codec/leaf_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tilery {
namespace {

constexpr size_t kNeighbours = 13;
// x, y, z of them: those that touch, those at edges and corners, and the next but one.
constexpr int kOffsets[kNeighbours][3] = {
    {0, 0, -1}, {0, -1, 0}, {-1, 0, 0}, {0, -1, -1}, {-1, 0, -1}, {-1, -1, 0}, {-1, -1, -1},
    {0, -1, 1}, {-1, 0, 1}, {-1, 1, 0}, {0, 0, -2},  {0, -2, 0},  {-2, 0, 0}};
constexpr size_t kTouching = 3, kNear = 10;

constexpr int kBelow = 2, kAbove = 1;  // borders around a block, for neighbours beyond it
constexpr int kSide = kBelow + 8 * kBlockLeaves + kAbove;

constexpr int kFine = 16;            // neighbours are told in sixteenths, as means are
constexpr int kWeightBits = 12 + 4;  // of a weight and of a sixteenth
constexpr int32_t kSixth = (1 << kWeightBits) / 6;

// Mean difference of the neighbours, in sixteenths, from which another model is taken.
constexpr int kDifferences[] = {1, 3, 5, 8, 12, 18, 26, 40, 64, 112, 224};
constexpr size_t kByDifference = std::size(kDifferences) + 1;
constexpr size_t kByKnown = 4, kByFraction = 3;
constexpr int kAllKnown = 12, kManyKnown = 7;

// The neighbours of one voxel.
struct Around {
  std::array<int32_t, kNeighbours> fine;  // in sixteenths; a mean for those that are not known
  int32_t mean = 0;                       // of those that touch, if there are some
  int known = 0;
  int difference = 0;  // of the near ones from the mean
};

}  // namespace

// What is known of a block.
class BlockValues {
 public:
  BlockValues() : values_(kSide * kSide * kSide), known_(values_.size()) {}

  void Clear() { std::fill(known_.begin(), known_.end(), uint8_t{0}); }

  static size_t At(int place, int voxel) {
    const int x = place / 16 * 8 + voxel / 64, y = place / 4 % 4 * 8 + voxel / 8 % 8,
              z = place % 4 * 8 + voxel % 8;
    return static_cast<size_t>(((x + kBelow) * kSide + y + kBelow) * kSide + z + kBelow);
  }

  void Set(size_t at, int32_t value) {
    values_[at] = value;
    known_[at] = 1;
  }

  Around Look(size_t at) const {
    Around around;
    std::array<bool, kNeighbours> known;
    for (size_t i = 0; i < kNeighbours; ++i) {
      const auto& to = kOffsets[i];
      const size_t neighbour = at + static_cast<size_t>((to[0] * kSide + to[1]) * kSide + to[2]);
      known[i] = known_[neighbour] != 0;
      around.fine[i] = known[i] ? values_[neighbour] * kFine : 0;
      around.known += known[i] ? 1 : 0;
    }
    int64_t sum = 0;
    int count = 0;
    const auto add = [&](size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) {
        sum += around.fine[i];
        count += known[i] ? 1 : 0;
      }
    };
    add(0, kTouching);
    if (count == 0) add(kTouching, kNeighbours);
    if (count > 0) around.mean = static_cast<int32_t>(sum / count);
    int64_t differences = 0;
    int near = 0;
    for (size_t i = 0; i < kNeighbours; ++i) {
      if (!known[i]) {
        around.fine[i] = around.mean;
      } else if (i < kNear) {
        differences += std::abs(int64_t{around.fine[i]} - around.mean);
        ++near;
      }
    }
    if (near > 0)
      around.difference = static_cast<int>(std::min<int64_t>(differences / near, INT32_MAX));
    return around;
  }

 private:
  std::vector<int32_t> values_;
  std::vector<uint8_t> known_;
};

namespace {

struct Prediction {
  int32_t value = 0;
  size_t model = 0;
};

Prediction Predict(const Around& around, const ValueWeights& weights) {
  int64_t sum = int64_t{weights[kNeighbours]} * kFine;
  for (size_t i = 0; i < kNeighbours; ++i) sum += int64_t{weights[i]} * around.fine[i];
  if (around.known < static_cast<int>(kTouching)) sum = int64_t{around.mean} << 12;
  const int64_t most = int64_t{kLargestCodedValue} << kWeightBits;
  sum = std::clamp(sum, -most, most);
  constexpr int64_t kHalf = int64_t{1} << (kWeightBits - 1);
  Prediction prediction;
  prediction.value = static_cast<int32_t>((sum + kHalf) >> kWeightBits);
  const int64_t fraction = sum - (int64_t{prediction.value} << kWeightBits);
  const size_t by_fraction = fraction < -kSixth ? 0 : fraction > kSixth ? 2 : 1;
  const auto by_difference = static_cast<size_t>(
      std::upper_bound(std::begin(kDifferences), std::end(kDifferences), around.difference) -
      std::begin(kDifferences));
  const size_t by_known = around.known >= kAllKnown    ? 0
                          : around.known >= kManyKnown ? 1
                          : around.known > 0           ? 2
                                                       : 3;
  prediction.model = (by_known * kByDifference + by_difference) * kByFraction + by_fraction;
  return prediction;
}

}  // namespace

// ---- weights ----

WeightsFit::WeightsFit()
    : products_(kTerms * (kTerms + 1)), block_(std::make_unique<BlockValues>()) {}
WeightsFit::~WeightsFit() = default;

void WeightsFit::BeginBlock() { block_->Clear(); }

void WeightsFit::Add(int place, const LeafMask& mask, std::span<const int32_t, 512> values) {
  ForOn(mask, [&](size_t voxel_index) {
    const auto voxel = static_cast<int>(voxel_index);
    const size_t at = BlockValues::At(place, voxel);
    const int32_t value = values[static_cast<size_t>(voxel)];
    const Around around = block_->Look(at);
    block_->Set(at, value);
    if (around.known < kManyKnown + 3) return;
    std::array<double, kTerms + 1> terms;
    for (size_t i = 0; i < kNeighbours; ++i) terms[i] = static_cast<double>(around.fine[i]) / kFine;
    terms[kNeighbours] = 1;
    terms[kTerms] = value;
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j <= kTerms; ++j) products_[i * (kTerms + 1) + j] += terms[i] * terms[j];
    }
  });
}

// By Gauss and Jordan, with a little weight on small solutions, which also makes it unique.
ValueWeights WeightsFit::Weights() const {
  constexpr size_t kRow = kTerms + 1;
  constexpr double kOne = 4096;
  std::vector<double> rows = products_;
  for (size_t i = 0; i < kTerms; ++i) rows[i * kRow + i] += 1e-3 * (rows[i * kRow + i] + 1);
  for (size_t i = 0; i < kTerms; ++i) {
    size_t pivot = i;
    for (size_t r = i; r < kTerms; ++r) {
      if (std::abs(rows[r * kRow + i]) > std::abs(rows[pivot * kRow + i])) pivot = r;
    }
    std::swap_ranges(&rows[i * kRow], &rows[i * kRow] + kRow, &rows[pivot * kRow]);
    for (size_t r = 0; r < kTerms; ++r) {
      if (r == i) continue;
      const double factor = rows[r * kRow + i] / rows[i * kRow + i];
      for (size_t j = i; j < kRow; ++j) rows[r * kRow + j] -= factor * rows[i * kRow + j];
    }
  }
  ValueWeights weights{};
  for (size_t i = 0; i < kTerms; ++i) {
    const double weight = rows[i * kRow + kTerms] / rows[i * kRow + i] * kOne;
    weights[i] = static_cast<int16_t>(std::clamp(std::nearbyint(weight), -32767.0, 32767.0));
  }
  return weights;
}

// ---- coding ----

LeafValueModel::LeafValueModel(const ValueWeights& weights)
    : weights_(weights),
      models_(kByKnown * kByDifference * kByFraction),
      block_(std::make_unique<BlockValues>()) {}
LeafValueModel::~LeafValueModel() = default;
LeafValueModel::LeafValueModel(LeafValueModel&&) noexcept = default;

void LeafValueModel::BeginBlock() { block_->Clear(); }

template <typename Code>
void LeafValueModel::Run(int place, const LeafMask& mask, const Code& code) {
  ForOn(mask, [&](size_t voxel_index) {
    const auto voxel = static_cast<int>(voxel_index);
    const size_t at = BlockValues::At(place, voxel);
    const Prediction prediction = Predict(block_->Look(at), weights_);
    block_->Set(at, code(&models_[prediction.model], voxel, prediction.value));
  });
}

void LeafValueModel::Encode(RangeEncoder* coder, int place, const LeafMask& mask,
                            std::span<const int32_t, 512> values) {
  Run(place, mask, [&](AdaptiveNumber* model, int voxel, int32_t predicted) {
    const int32_t value = values[static_cast<size_t>(voxel)];
    model->Encode(coder, int64_t{value} - predicted);
    return value;
  });
}

void LeafValueModel::Decode(RangeDecoder* coder, int place, const LeafMask& mask,
                            std::span<int32_t, 512> values) {
  Run(place, mask, [&](AdaptiveNumber* model, int voxel, int32_t predicted) {
    constexpr int64_t kMost = kLargestCodedValue;
    const int64_t differs = std::clamp(model->Decode(coder), -2 * kMost, 2 * kMost);
    const auto value = static_cast<int32_t>(std::clamp(predicted + differs, -kMost, kMost));
    values[static_cast<size_t>(voxel)] = value;
    return value;
  });
}

}  // namespace tilery
