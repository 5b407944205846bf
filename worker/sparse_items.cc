#include "worker/sparse_items.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "io/error.h"
#include "io/vdb_writer.h"
#include "worker/fault_points.h"
#include "worker/publish.h"
#include "worker/unit_env.h"

namespace tilery {
namespace {

const VdbGrid& GridOf(const VdbFile& file, const UnitWork& work) {
  for (const VdbGrid& grid : file.grids()) {
    if (grid.label == work.grid && VdbNumbersOf(grid.type)) return grid;
  }
  throw Error(Fault::kInternal, Printable(work.input) + " has no grid '" + work.grid + "'");
}

// The nodes of a tree in which no inner node has active tiles: lower nodes and leaves stand in
// their place.
class LeafyTree {
 public:
  LeafyTree(const VdbFile& file, const VdbGrid& grid) : tree_(file, grid) {}

  const VdbTreeReader& tree() const { return tree_; }
  // As VdbTreeReader::Next. `made`: the node is none of the file's.
  bool Next(VdbNode* node, bool* made) {
    for (;;) {
      if (lower_.Next()) {
        *made = lower_.made.on(lower_.place);
        if (*made) {
          MakeLeaf(node);
        } else if (!tree_.Next(node)) {
          Ends();
        }
        return true;
      }
      if (upper_.Next()) {
        *made = upper_.made.on(upper_.place);
        if (*made) {
          MakeLower(node);
        } else if (!tree_.Next(node)) {
          Ends();
        }
        lower_ = Open(*node, *made);
        Dense(node);
        return true;
      }
      if (!tree_.Next(node)) return false;
      *made = false;
      upper_ = Open(*node, false);
      Dense(node);
      return true;
    }
  }
  void ReadLeaf(const VdbNode& leaf, std::span<std::byte> values) { tree_.ReadLeaf(leaf, values); }

 private:
  // A node whose places are gone through.
  struct Open {
    Open() = default;
    Open(const VdbNode& node, bool all_made)
        : level(node.level), origin(node.origin), children(node.children), made(node.active) {
      for (size_t i = 0; i < children.words().size(); ++i) {
        children.words()[i] |= made.words()[i];
        if (all_made) made.words()[i] = children.words()[i];
      }
    }
    bool Next() {
      place =
          children.places() > 0 && place + 1 < children.places() ? children.NextOn(place + 1) : -1;
      if (place < 0) children = VdbMask(0);
      return place >= 0;
    }
    VdbCoord At() const {
      VdbCoord at = VdbPlaceOffset(level, place);
      for (size_t axis = 0; axis < 3; ++axis) at[axis] += origin[axis];
      return at;
    }
    VdbLevel level = VdbLevel::kUpper;
    VdbCoord origin{};
    VdbMask children{0}, made{0};
    int place = -1;
  };

  // Active tiles become nodes.
  void Dense(VdbNode* node) const {
    const size_t bytes = tree_.numbers().bytes();
    for (int place = node->active.NextOn(0); place >= 0; place = node->active.NextOn(place + 1)) {
      node->children.SetOn(place);
      std::memset(&node->values[static_cast<size_t>(place) * bytes], 0, bytes);
    }
    node->active = VdbMask(VdbPlaces(node->level));
  }
  static void AllOn(VdbMask* mask, int places) {
    *mask = VdbMask(places);
    std::fill(mask->words().begin(), mask->words().end(), ~uint64_t{0});
  }
  void MakeLower(VdbNode* node) const {
    node->level = VdbLevel::kLower;
    node->origin = upper_.At();
    AllOn(&node->children, VdbPlaces(VdbLevel::kLower));
    node->active = VdbMask(VdbPlaces(VdbLevel::kLower));
    node->values.assign(VdbPlaces(VdbLevel::kLower) * tree_.numbers().bytes(), std::byte{0});
  }
  void MakeLeaf(VdbNode* node) const {
    node->level = VdbLevel::kLeaf;
    node->origin = lower_.At();
    node->children = VdbMask(0);
    AllOn(&node->active, kVdbLeafVoxels);
    node->values.clear();
  }
  [[noreturn]] static void Ends() {
    throw Error(Fault::kInternal, "a tree has fewer nodes than it says");
  }

  VdbTreeReader tree_;
  Open upper_, lower_;
};

// The leaves of one lower node and what they hold.
class LowerLeaves {
 public:
  LowerLeaves(const SparseItem& item, int32_t channels)
      : item_(item), channels_(channels), numbers_(item.regions().numbers()) {}

  void Add(const VdbNode& leaf, std::vector<std::byte> values) {
    leaves_.push_back({leaf, std::move(values), {}});
    if (leaf.active.NextOn(0) < 0) return;
    Index& begin = leaves_.back().begin;
    Index first = {INT64_MAX, INT64_MAX, INT64_MAX};
    for (int voxel = leaf.active.NextOn(0); voxel >= 0; voxel = leaf.active.NextOn(voxel + 1)) {
      const VdbCoord at = VdbPlaceOffset(VdbLevel::kLeaf, voxel);
      for (size_t axis = 0; axis < 3; ++axis)
        first[axis] = std::min(first[axis], int64_t{leaf.origin[2 - axis]} + at[2 - axis]);
    }
    begin = item_.tiles().ToItem(first);
    for (size_t axis = 0; axis < 3; ++axis) begin[axis] += leaf.origin[2 - axis];
    constexpr int64_t kEdge = VdbEdge(VdbLevel::kLeaf);
    box_ = Hull(box_, {begin, {begin[0] + kEdge, begin[1] + kEdge, begin[2] + kEdge}});
  }
  bool empty() const { return leaves_.empty(); }

  // Puts what `fill` gives in place of the active values, and writes all leaves.
  void Write(const Index& item_shape,
             const std::function<void(const Box& box, const View& out)>& fill, VdbWriter* writer) {
    const Box box = Intersect(box_, Box::Whole(item_shape));
    samples_.resize(static_cast<size_t>(box.voxels() * channels_));
    const View view = DenseView(reinterpret_cast<std::byte*>(samples_.data()), DType::kF32,
                                channels_, box.shape(), Layout::kInterleaved);
    if (!box.empty()) fill(box, view);
    for (auto& [leaf, values, begin] : leaves_) {
      for (int voxel = leaf.active.NextOn(0); voxel >= 0; voxel = leaf.active.NextOn(voxel + 1)) {
        const VdbCoord at = VdbPlaceOffset(VdbLevel::kLeaf, voxel);
        Index place;
        for (size_t axis = 0; axis < 3; ++axis)
          place[axis] = begin[axis] + at[2 - axis] - box.begin[axis];
        for (int32_t c = 0; c < channels_; ++c) {
          const float value =
              *reinterpret_cast<const float*>(view.at(c, place[0], place[1], place[2]));
          Put(value, &values[static_cast<size_t>(voxel) * numbers_.bytes() +
                             static_cast<size_t>(c) * DTypeSize(numbers_.dtype)]);
        }
      }
      writer->Leaf(leaf, values);
    }
    leaves_.clear();
    box_ = {};
  }

 private:
  void Put(float value, std::byte* to) const {
    if (item_.grid().half && std::isfinite(value) && std::isinf(HalfToFloat(FloatToHalf(value)))) {
      throw Error(Fault::kModel, "the result " + std::to_string(value) + " does not fit grid '" +
                                     Printable(item_.grid().label, 60) +
                                     "', which is stored in 16 bits, whose limit is 65504: scale "
                                     "the result with output.post, or save the input in 32 bits");
    }
    if (numbers_.dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      const double wide = value;
      std::memcpy(to, &wide, sizeof wide);
    }
  }

  const SparseItem& item_;
  const int32_t channels_;
  const VdbNumbers numbers_;
  struct Leaf {
    VdbNode node;
    std::vector<std::byte> values;
    Index begin;  // in the item, where its active voxels lie
  };
  std::vector<Leaf> leaves_;
  Box box_;  // item voxels
  std::vector<float> samples_;
};

}  // namespace

SparseItem::SparseItem(const UnitWork& work, const Tiling& tiling)
    : file_(OpenGridsUnchanged<VdbFile>(work.input, work.stamp)),
      grid_(GridOf(file_, work)),
      tiles_(FindSparseTiles(file_, grid_, tiling)),
      regions_(file_, grid_) {
  if (tiles_.shape != work.header.shape) {
    throw Error(Fault::kInternal, Printable(work.input) + ": the tiles of grid '" + work.grid +
                                      "' lie in " + ShapeToString(tiles_.shape, 3) +
                                      " voxels, those of the plan in " +
                                      ShapeToString(work.header.shape, 3));
  }
}

std::shared_ptr<const SparseItem> SparseItems::Get(const UnitWork& work, const Tiling& tiling) {
  const std::lock_guard lock(mutex_);
  const std::string& key = work.item_key;  // of file, grid and all that decides tiles
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.key == key && entry.tiling == tiling;
  });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front({key, tiling, std::make_shared<const SparseItem>(work, tiling)});
    if (entries_.size() > kKept) entries_.pop_back();
  }
  return entries_.front().item;
}

void OpenSparse(const UnitEnv& env, UnitTask& task) {
  if (task.geometry) return;
  const UnitWork& work = task.work();
  const Tiling& tiling = env.params(work).tiling;
  StageScope scope(env, task, Stage::kRead);
  task.sparse = env.sparse_items.Get(work, tiling);
  CheckUnchanged(work.input, work.stamp);
  task.geometry = std::make_shared<const ItemGeometry>(work.header.shape, tiling, work.sizing,
                                                       task.sparse->tiles().tiles);
}

void WriteSparse(const UnitEnv& env, UnitTask& task, OutputFile& file,
                 const std::function<void(const Box& box, const View& out)>& fill) {
  const SparseItem& item = *task.sparse;
  VdbGrid about = item.grid();
  about.stored = about.name;  // without what told it from twins that are not written
  VdbWriter writer(file, item.file().version(), item.file().metadata(), 1);
  writer.Begin(about);
  VdbNode node;
  bool made = false;
  {
    StageScope scope(env, task, Stage::kEncode);
    LeafyTree nodes(item.file(), item.grid());
    writer.Root(std::as_bytes(std::span(item.regions().background())), nodes.tree().root_tiles(),
                nodes.tree().upper_nodes());
    while (nodes.Next(&node, &made)) writer.Node(node);
  }
  LeafyTree leaves(item.file(), item.grid());
  LowerLeaves lower(item, env.params(task.work()).output.channels);
  const size_t leaf_bytes = kVdbLeafVoxels * item.regions().numbers().bytes();
  const auto write = [&] {
    if (lower.empty()) return;
    FaultPoint(FaultPlace::kAssemble);
    CheckWanted(env, task);
    StageScope scope(env, task, Stage::kEncode);
    lower.Write(task.geometry->grid().output_shape, fill, &writer);
    ++env.bands;
  };
  while (leaves.Next(&node, &made)) {
    if (node.level != VdbLevel::kLeaf) {
      write();
      continue;
    }
    std::vector<std::byte> values(leaf_bytes);
    if (!made) leaves.ReadLeaf(node, values);
    lower.Add(node, std::move(values));
  }
  write();
  writer.End();
  writer.Finish();
}

}  // namespace tilery
