#include "pipeline/codec/context_coder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "pipeline/codec/context_symbols.h"

namespace tilery {
namespace {

constexpr int64_t kFittedVoxels = 1 << 14;
constexpr int kFittedKnown = 10;  // voxels that have fewer known neighbours do not count
constexpr size_t kBatch = 64;     // voxels that go through the network at once

template <typename Use>
void ForActive(const BlockNumbers& block, const Use& use) {
  for (size_t leaf = 0; leaf < block.places.size(); ++leaf) {
    const int place = block.places[leaf];
    const int corner =
        ((place / 16 * 8 + kContextBelow) * kContextPadded + place / 4 % 4 * 8 + kContextBelow) *
            kContextPadded +
        place % 4 * 8 + kContextBelow;
    ForOn(block.masks[leaf], [&](size_t voxel) {
      use(leaf, voxel, static_cast<size_t>(corner + ContextVoxel(static_cast<int>(voxel))));
    });
  }
}

// row[j] += factor * terms[j]. The same sums for every kernel: each is one product and one sum.
void AddProductsPortable(double factor, const double* terms, size_t count, double* row) {
  for (size_t j = 0; j < count; ++j) row[j] += factor * terms[j];
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void AddProductsAvx2(double factor, const double* terms,
                                                     size_t count, double* row) {
  for (size_t j = 0; j < count; ++j) row[j] += factor * terms[j];
}
#endif
void AddProducts(double factor, const double* terms, size_t count, double* row) {
#if defined(__x86_64__)
  if (FastestContextKernel() == ContextKernel::kAvx2)
    return AddProductsAvx2(factor, terms, count, row);
#endif
  AddProductsPortable(factor, terms, count, row);
}

}  // namespace

// A block's voxels with borders around them.
class ContextMemory {
 public:
  explicit ContextMemory(size_t components) : active(kContextVoxels) {
    values.resize(components, std::vector<int32_t>(kContextVoxels));
    errors.resize(components, std::vector<int32_t>(kContextVoxels));
    order.reserve(static_cast<size_t>(kContextSide) * kContextSide * kContextSide);
  }

  // The leaves of `block`, nothing of its values.
  void Begin(const BlockNumbers& block) {
    for (const int32_t at : order) {
      active[static_cast<size_t>(at)] = 0;
      for (auto* all : {&values, &errors}) {
        for (std::vector<int32_t>& component : *all) component[static_cast<size_t>(at)] = 0;
      }
    }
    order.clear();
    ForActive(block, [&](size_t, size_t, size_t at) { active[at] = 1; });
    const ContextWaves& waves = ContextOrder();
    for (size_t wave = 0; wave < kContextWaves; ++wave) {
      begin[wave] = order.size();
      for (int32_t i = waves.begin[wave]; i < waves.begin[wave + 1]; ++i) {
        if (active[static_cast<size_t>(waves.at[i])] != 0) order.push_back(waves.at[i]);
      }
    }
    begin[kContextWaves] = order.size();
  }
  void SetValues(const BlockNumbers& block, size_t component) {
    ForActive(block, [&](size_t leaf, size_t voxel, size_t at) {
      values[component][at] = block.values[component][leaf][voxel];
    });
  }
  void GetValues(BlockNumbers* block, size_t component) const {
    ForActive(*block, [&](size_t leaf, size_t voxel, size_t at) {
      block->values[component][leaf][voxel] = values[component][at];
    });
  }

  ContextBlock View(size_t component) const {
    ContextBlock view{};
    view.active = active.data();
    for (size_t c = 0; c <= component; ++c) {
      view.values[c] = values[c].data();
      view.errors[c] = errors[c].data();
    }
    view.component = static_cast<int>(component);
    return view;
  }

  std::vector<uint8_t> active;
  std::vector<std::vector<int32_t>> values, errors;
  std::vector<int32_t> order;                     // active voxels by waves
  std::array<size_t, kContextWaves + 1> begin{};  // of the waves, in `order`
};

namespace {

// What a few voxels of a component need on their way through the network.
class Batch {
 public:
  Batch(const ContextComponent& component, const ContextBlock& block)
      : component_(component), block_(block) {}

  void Add(int at, const ContextPrediction& prediction) {
    shifts_[size_] = ContextInputs(ContextModel(), component_, block_, at, prediction,
                                   &inputs_[size_ * kContextInputs]);
    predictions_[size_++] = prediction;
  }
  void Run(ContextKernel kernel) {
    RunContextNetwork(std::span(inputs_).first(size_ * kContextInputs), outputs_, kernel);
  }
  ContextDistribution DistributionOf(size_t i) const {
    return Distribution(ContextModel(), &outputs_[i * kContextOutputs], predictions_[i].value,
                        shifts_[i]);
  }
  std::span<const int8_t, kContextInputs> inputs(size_t i) const {
    return std::span(inputs_).subspan(i * kContextInputs).first<kContextInputs>();
  }
  const ContextPrediction& prediction(size_t i) const { return predictions_[i]; }
  int shift(size_t i) const { return shifts_[i]; }
  size_t size() const { return size_; }
  bool full() const { return size_ == kBatch; }
  void Clear() { size_ = 0; }

 private:
  const ContextComponent& component_;
  const ContextBlock block_;
  size_t size_ = 0;
  std::array<int8_t, kBatch * kContextInputs> inputs_;
  std::array<int32_t, kBatch * kContextOutputs> outputs_;
  std::array<ContextPrediction, kBatch> predictions_;
  std::array<int, kBatch> shifts_;
};

}  // namespace

// ---- fit ----

struct ContextFit::Sums {
  static constexpr size_t kRow = kContextTerms + 1;
  // Products of the terms with each other and, last, with what is to be told; the upper half.
  std::vector<double> products = std::vector<double>(kContextTerms * kRow);
  int32_t least = INT32_MAX, most = INT32_MIN;
};

ContextFit::ContextFit(size_t components, int64_t voxels)
    : every_(std::max<int64_t>(1, voxels / kFittedVoxels)),
      memory_(std::make_unique<ContextMemory>(components)),
      sums_(components) {}
ContextFit::~ContextFit() = default;

void ContextFit::Add(const BlockNumbers& block) {
  memory_->Begin(block);
  for (size_t c = 0; c < sums_.size(); ++c) memory_->SetValues(block, c);
  for (const int32_t at : memory_->order) {
    const bool counts = count_++ % every_ == 0;
    for (size_t c = 0; c < sums_.size(); ++c) {
      Sums& sums = sums_[c];
      const int32_t value = memory_->values[c][static_cast<size_t>(at)];
      sums.least = std::min(sums.least, value);
      sums.most = std::max(sums.most, value);
      if (!counts) continue;
      const ContextBlock view = memory_->View(c);
      std::array<double, Sums::kRow> terms{};
      const ContextPrediction around = ForTerms(view, at, [&](int term, int32_t off) {
        terms[static_cast<size_t>(term)] = static_cast<double>(off) / 16;
      });
      if (around.known < kFittedKnown) continue;
      terms[kContextTerms - 1] = 1;
      terms[kContextTerms] = value - static_cast<double>(around.mean) / 16;
      // There are none of components that do not come before this one.
      const size_t there = kContextCausal + c * kContextAround;
      constexpr size_t kOne = kContextTerms - 1;
      for (size_t i = 0; i < kContextTerms; i = i + 1 == there ? kOne : i + 1) {
        if (terms[i] == 0) continue;
        double* const row = &sums.products[i * Sums::kRow];
        if (i < there) AddProducts(terms[i], &terms[i], there - i, row + i);
        AddProducts(terms[i], &terms[kOne], 2, row + kOne);
      }
    }
  }
}

// By Gauss, with a little weight on small solutions, which also makes it unique. The matrix is
// symmetric and positive, so no pivot is needed.
std::vector<ContextComponent> ContextFit::Components() const {
  constexpr size_t kRow = Sums::kRow;
  constexpr double kOne = 4096;
  std::vector<ContextComponent> all;
  for (const Sums& sums : sums_) {
    std::vector<double> rows = sums.products;
    for (size_t i = 0; i < kContextTerms; ++i) {
      rows[i * kRow + i] += 1e-3 * (rows[i * kRow + i] + 1);
      for (size_t j = 0; j < i; ++j) rows[i * kRow + j] = rows[j * kRow + i];
    }
    for (size_t i = 0; i < kContextTerms; ++i) {
      for (size_t r = i + 1; r < kContextTerms; ++r) {
        const double factor = rows[r * kRow + i] / rows[i * kRow + i];
        if (factor == 0) continue;
        for (size_t j = i; j < kRow; ++j) rows[r * kRow + j] -= factor * rows[i * kRow + j];
      }
    }
    ContextComponent component{};
    std::array<double, kContextTerms> weights;
    for (size_t i = kContextTerms; i-- > 0;) {
      double sum = rows[i * kRow + kContextTerms];
      for (size_t j = i + 1; j < kContextTerms; ++j) sum -= rows[i * kRow + j] * weights[j];
      weights[i] = sum / rows[i * kRow + i];
      component.weights[i] =
          static_cast<int16_t>(std::clamp(std::nearbyint(weights[i] * kOne), -32767.0, 32767.0));
    }
    component.least = std::min(sums.least, sums.most);
    component.most = std::max(sums.least, sums.most);
    all.push_back(component);
  }
  return all;
}

// ---- coding ----

ContextCoder::ContextCoder(std::span<const ContextComponent> components, ContextKernel kernel)
    : components_(components),
      kernel_(kernel),
      memory_(std::make_unique<ContextMemory>(components.size())) {}
ContextCoder::~ContextCoder() = default;

template <typename Code>
void ContextCoder::ForKnown(size_t component, const Code& code) {
  const ContextBlock view = memory_->View(component);
  std::vector<int32_t>& errors = memory_->errors[component];
  const std::vector<int32_t>& order = memory_->order;
  std::vector<ContextPrediction> predictions(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    predictions[i] = Predict(components_[component], view, order[i]);
    const auto at = static_cast<size_t>(order[i]);
    errors[at] = ContextError(memory_->values[component][at], predictions[i]);
  }
  Batch batch(components_[component], view);
  for (size_t first = 0; first < order.size(); first += batch.size()) {
    batch.Clear();
    for (size_t i = first; i < order.size() && !batch.full(); ++i)
      batch.Add(order[i], predictions[i]);
    code(batch, std::span(order).subspan(first, batch.size()));
  }
}

void ContextCoder::Encode(RangeEncoder* coder, const BlockNumbers& block) {
  memory_->Begin(block);
  for (size_t c = 0; c < components_.size(); ++c) {
    memory_->SetValues(block, c);
    const std::vector<int32_t>& values = memory_->values[c];
    ForKnown(c, [&](Batch& batch, std::span<const int32_t> voxels) {
      batch.Run(kernel_);
      for (size_t i = 0; i < voxels.size(); ++i) {
        WriteSymbol(SymbolOf(ContextModel(), batch.DistributionOf(i),
                             values[static_cast<size_t>(voxels[i])]),
                    coder->core());
      }
    });
  }
}

void ContextCoder::Decode(RangeDecoder* coder, BlockNumbers* block) {
  memory_->Begin(*block);
  for (size_t c = 0; c < components_.size(); ++c) {
    const ContextBlock view = memory_->View(c);
    std::vector<int32_t>&values = memory_->values[c], &errors = memory_->errors[c];
    const std::vector<int32_t>& order = memory_->order;
    Batch batch(components_[c], view);
    for (size_t wave = 0; wave < kContextWaves; ++wave) {
      const size_t end = memory_->begin[wave + 1];
      for (size_t first = memory_->begin[wave]; first < end; first += batch.size()) {
        batch.Clear();
        for (size_t i = first; i < end && !batch.full(); ++i)
          batch.Add(order[i], Predict(components_[c], view, order[i]));
        batch.Run(kernel_);
        for (size_t i = 0; i < batch.size(); ++i) {
          const auto at = static_cast<size_t>(order[first + i]);
          values[at] = ReadValue(ContextModel(), batch.DistributionOf(i), coder->core());
          errors[at] = ContextError(values[at], batch.prediction(i));
        }
      }
    }
    memory_->GetValues(block, c);
  }
}

void ContextCoder::Samples(const BlockNumbers& block, const Sample& sample) {
  memory_->Begin(block);
  for (size_t c = 0; c < components_.size(); ++c) {
    memory_->SetValues(block, c);
    ForKnown(c, [&](Batch& batch, std::span<const int32_t> voxels) {
      for (size_t i = 0; i < voxels.size(); ++i)
        sample(batch.inputs(i), batch.shift(i), memory_->errors[c][static_cast<size_t>(voxels[i])]);
    });
  }
}

}  // namespace tilery
