#include "scheduler/tiling_rules.h"

#include <algorithm>
#include <numeric>

#include "io/error.h"

namespace tilery {
namespace {

constexpr int64_t kTile2d = 256;
constexpr int64_t kTile3d = 96;
constexpr int64_t kLargestTile = 1 << 20;  // voxels along one axis

class TilingRules {
 public:
  TilingRules(const Job& job, const Contract& contract, int dims)
      : job_(job), contract_(contract), dims_(dims) {}

  ResolvedTiling Resolve() {
    ResolvedTiling out;
    out.tiling.window = job_.tiling.window;
    out.tiling.pad = job_.tiling.pad;
    out.exact = true;
    for (int k = 0; k < dims_; ++k) {
      const int axis = 3 - dims_ + k;
      const Rational scale = Of(contract_.scale, k, Rational{}, "model.scale");
      const int64_t multiple = Of(contract_.multiple, k, int64_t{1}, "model.multiple");
      q_ = scale.den;
      grain_ = std::lcm(q_, multiple);
      const int64_t tile = Tile(k);
      const int64_t overlap = Overlap(k, tile);
      const int64_t trim = Trim(k, overlap, out);
      out.tiling.scale[axis] = scale;
      out.tiling.multiple[axis] = multiple;
      out.tiling.tile[axis] = tile;
      out.tiling.overlap[axis] = overlap;
      out.tiling.trim[axis] = trim;
      out.tile.push_back(tile);
      out.overlap.push_back(overlap);
      out.trim.push_back(trim);
    }
    CheckTiling(out.tiling);
    return out;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(Fault::kUsage,
                (job_.file.empty() ? "" : Printable(job_.file.string()) + ": ") + what);
  }

  // The value for axis k of one or `dims` values.
  template <typename T>
  T At(const std::vector<T>& values, int k, const std::string& key) const {
    if (values.size() != 1 && values.size() != static_cast<size_t>(dims_)) {
      Refuse(key + " has " + std::to_string(values.size()) + " values, but the model works in " +
             std::to_string(dims_) + " dimensions here; give one, or " + std::to_string(dims_) +
             " in the order " + (dims_ == 2 ? "y, x" : "z, y, x") +
             (contract_.dims ? "" : " (or set model.dims)"));
    }
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(k)];
  }
  template <typename T>
  T Of(const std::optional<std::vector<T>>& values, int k, T standard,
       const std::string& key) const {
    return values ? At(*values, k, key) : standard;
  }

  // "must be a multiple of 8: 56 or 64".
  void CheckGrain(const std::string& key, int64_t value, int64_t grain, int64_t least) const {
    if (value % grain == 0) return;
    const int64_t below = value / grain * grain;
    Refuse(key + ": " + std::to_string(value) + " is no multiple of " + std::to_string(grain) +
           ", which the model needs; the next valid: " +
           (below >= least ? std::to_string(below) + " or " : "") + std::to_string(below + grain));
  }

  int64_t CheckedTile(const std::string& key, int64_t tile) const {
    if (tile > kLargestTile) {
      Refuse(key + ": " + std::to_string(tile) + " is beyond the limit of " +
             std::to_string(kLargestTile) + " voxels along one axis; choose a smaller tile");
    }
    CheckGrain(key, tile, grain_, 1);
    return tile;
  }

  int64_t Tile(int k) const {
    const Extent& given = job_.tiling.tile;
    if (given.kind == Extent::Kind::kVoxels) {
      const std::string key = "tiling.tile";
      return CheckedTile(key, static_cast<int64_t>(At(given.values, k, key)));
    }
    if (contract_.tile) {
      const std::string key = "model.tiling.tile";
      return CheckedTile(key, At(*contract_.tile, k, key));
    }
    return RoundUp(dims_ == 2 ? kTile2d : kTile3d, grain_);
  }

  int64_t Overlap(int k, int64_t tile) const {
    const Extent& given = job_.tiling.overlap;
    std::string key = "tiling.overlap";
    int64_t overlap = 0;
    if (given.kind == Extent::Kind::kVoxels) {
      overlap = static_cast<int64_t>(At(given.values, k, key));
    } else if (given.kind == Extent::Kind::kPercent) {
      // Exact for whole percentages: 25 % of 4 is 1 and never 0.
      const double share = At(given.values, k, key);
      overlap = static_cast<int64_t>(static_cast<double>(tile) * share / 100 + 1e-9);
      overlap = std::min(overlap, tile - 1) / grain_ * grain_;  // 99.9999999999 % is no whole tile
    } else if (contract_.overlap && job_.tiling.tile.kind == Extent::Kind::kAuto) {
      key = "model.tiling.overlap";
      overlap = At(*contract_.overlap, k, key);
    } else {
      const int64_t exact = contract_.radius ? ExactOverlap(Radius(k)) : tile;
      return 2 * exact <= tile ? exact : tile / 4 / grain_ * grain_;
    }
    if (overlap >= tile) {
      Refuse(key + ": the overlap of " + std::to_string(overlap) + " must be below the tile of " +
             std::to_string(tile) +
             "; at most half a tile is usual: " + std::to_string(tile / 2 / grain_ * grain_));
    }
    CheckGrain(key, overlap, grain_, 0);
    return overlap;
  }

  int64_t Radius(int k) const { return At(*contract_.radius, k, "model.radius"); }
  // The smallest overlap whose trim covers radius r.
  int64_t ExactOverlap(int64_t r) const { return RoundUp(2 * RoundUp(r, q_), grain_); }

  int64_t Trim(int k, int64_t overlap, ResolvedTiling& out) const {
    const Extent& given = job_.tiling.trim;
    const std::optional<int64_t> radius =
        contract_.radius ? std::optional<int64_t>(Radius(k)) : std::nullopt;
    const int64_t needed = radius ? RoundUp(*radius, q_) : 0;
    int64_t trim = 0;
    if (given.kind == Extent::Kind::kVoxels) {
      trim = static_cast<int64_t>(At(given.values, k, "tiling.trim"));
      if (2 * trim > overlap) {
        Refuse("tiling.trim: the trim of " + std::to_string(trim) +
               " is above half the overlap of " + std::to_string(overlap) + "; at most " +
               std::to_string(overlap / 2 / q_ * q_));
      }
      CheckGrain("tiling.trim", trim, q_, 0);
    } else if (radius) {
      trim = 2 * needed <= overlap ? needed : overlap / 4 / q_ * q_;
    }
    if (!radius) {
      NotExact(out, "the model's receptive radius is not known (model.radius)");
    } else if (trim < needed) {
      NotExact(out, 2 * needed <= overlap
                        ? "exact needs trim " + std::to_string(needed)
                        : "exact needs overlap " + std::to_string(ExactOverlap(*radius)));
    }
    return trim;
  }

  static void NotExact(ResolvedTiling& out, const std::string& why) {
    if (out.exact) out.inexact_reason = "not exact: " + why;
    out.exact = false;
  }

  const Job& job_;
  const Contract& contract_;
  const int dims_;
  int64_t q_ = 1, grain_ = 1;  // of the axis at hand
};

}  // namespace

ResolvedTiling ResolveTiling(const Job& job, const Contract& contract, int dims) {
  return TilingRules(job, contract, dims).Resolve();
}

}  // namespace tilery
