#include "io/vdb_writer.h"

#include <algorithm>
#include <cstring>

#include "io/error.h"
#include "io/hash.h"
#include "io/vdb_pack.h"

namespace tilery {
namespace {

constexpr int64_t kMagic = 0x56444220;
constexpr std::string_view kHalfSuffix = "_HalfFloat";
constexpr size_t kBuffer = 1 << 20;

[[noreturn]] void OutOfOrder(const char* what) {
  throw Error(Fault::kInternal, std::string("an OpenVDB file is written out of order: ") + what);
}

// A hash of 32 hex digits in the form of an identity of 36 letters.
std::string IdentityOf(const std::string& hash) {
  return hash.substr(0, 8) + "-" + hash.substr(8, 4) + "-" + hash.substr(12, 4) + "-" +
         hash.substr(16, 4) + "-" + hash.substr(20, 12);
}

}  // namespace

struct VdbWriter::Impl {
  Impl(OutputFile& out_in, uint32_t version, int32_t grids_in) : out(out_in), grids(grids_in) {
    // The library's version says who wrote a file; no reader depends on it.
    constexpr uint32_t kLibrary[2] = {10, 0};
    Number(kMagic);
    Number(version);
    Number(kLibrary);
    Number(uint8_t{1});  // offsets are there
    identity_at = position();
    const std::string unknown(36, '0');
    Bytes(std::as_bytes(std::span(unknown)));
  }

  int64_t position() const { return written + static_cast<int64_t>(buffer.size()); }
  void Flush() {
    out.Write(buffer);
    content.Update(buffer);
    written += static_cast<int64_t>(buffer.size());
    buffer.clear();
  }
  void Bytes(std::span<const std::byte> bytes) {
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    if (buffer.size() >= kBuffer) Flush();
  }
  template <typename T>
  void Number(const T& value) {
    Bytes(std::as_bytes(std::span(&value, 1)));
  }
  void Text(const std::string& text) {
    Number(static_cast<uint32_t>(text.size()));
    Bytes(std::as_bytes(std::span(text)));
  }
  void Metadata(const std::vector<VdbMeta>& all) {
    Number(static_cast<uint32_t>(all.size()));
    for (const VdbMeta& meta : all) {
      Text(meta.name);
      Text(meta.type);
      Text(meta.value);
    }
  }

  // The entry of the directory, whose places are filled in at the end, and what precedes the tree.
  void Begin(const VdbGrid& grid) {
    if (begun == grids) OutOfOrder("more grids than were announced");
    ++begun;
    Text(grid.stored);
    Text(grid.type + std::string(grid.half ? kHalfSuffix : ""));
    Text(grid.twin_of);
    places_at = position();
    const int64_t none[3] = {0, 0, 0};
    Number(none);
    places[0] = position();
    places[1] = 0;
    Number(grid.packing);
    Metadata(grid.metadata);
    Text(grid.transform.type);
    Bytes(std::as_bytes(std::span(grid.transform.bytes)));
  }
  void End() {
    places[2] = position();
    Flush();
    out.WriteAt(places_at, std::as_bytes(std::span(places)));
    content.Update(std::as_bytes(std::span(places)));
  }

  // Numbers as the grid stores them.
  std::span<const std::byte> Stored(std::span<const std::byte> values) {
    if (!grid.half) return values;
    const size_t size = DTypeSize(numbers.dtype), count = values.size() / size;
    halves.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
      float value;
      if (numbers.dtype == DType::kF32) {
        std::memcpy(&value, &values[size * i], sizeof value);
      } else {
        double wide;
        std::memcpy(&wide, &values[size * i], sizeof wide);
        value = static_cast<float>(wide);
      }
      const uint16_t bits = FloatToHalf(value);
      std::memcpy(&halves[2 * i], &bits, sizeof bits);
    }
    return halves;
  }

  void Values(const VdbMask& active, const VdbMask& children, std::span<const std::byte> values) {
    const bool by_mask = (grid.packing & VdbPacking::kActiveMask) != 0;
    VdbLeftOut out_of_it;
    if (by_mask) out_of_it = VdbLeaveOut(numbers, background, active, children, values);
    Number(out_of_it.inactive);
    for (size_t i = 0; i < out_of_it.stored_values(); ++i) Bytes(out_of_it.others[i]);
    if (out_of_it.has_mask()) {
      VdbMask second(active.places());
      for (int place = 0; place < active.places(); ++place) {
        if (active.on(place)) continue;
        const auto& other = out_of_it.others[1];
        if (std::equal(other.begin(), other.end(), &values[static_cast<size_t>(place) * bytes()]))
          second.SetOn(place);
      }
      Bytes(std::as_bytes(second.words()));
    }
    if (out_of_it.inactive == VdbInactive::kStored) return Packed(Stored(values));
    some.clear();
    for (int place = active.NextOn(0); place >= 0; place = active.NextOn(place + 1)) {
      const auto value = values.subspan(static_cast<size_t>(place) * bytes(), bytes());
      some.insert(some.end(), value.begin(), value.end());
    }
    if (grid.half && some.empty()) return;  // then not even a size is written
    Packed(Stored(some));
  }
  void Packed(std::span<const std::byte> stored) {
    packed.clear();
    // OpenVDB packs vectors as one number.
    const size_t number_bytes = grid.half ? 2 * static_cast<size_t>(numbers.components) : bytes();
    VdbAppendPacked(grid.packing, number_bytes, stored, &packed);
    Bytes(packed);
  }
  size_t bytes() const { return numbers.bytes(); }

  OutputFile& out;
  const int32_t grids;
  std::vector<std::byte> buffer;
  int64_t written = 0;
  ContentHash content;
  int64_t identity_at = 0;
  int32_t begun = 0, ended = 0;
  // The grid that is being written.
  VdbGrid grid;
  VdbNumbers numbers;
  std::vector<std::byte> background;
  int64_t places_at = 0;
  int64_t places[3] = {0, 0, 0};  // begin, values, end
  int64_t leaves = 0;             // among the nodes, less those whose values are written
  std::vector<std::byte> halves, some, packed;
};

VdbWriter::VdbWriter(OutputFile& out, uint32_t version, const std::vector<VdbMeta>& metadata,
                     int32_t grids)
    : impl_(std::make_unique<Impl>(out, version, grids)) {
  impl_->Metadata(metadata);
  impl_->Number(grids);
}

VdbWriter::~VdbWriter() = default;

void VdbWriter::Begin(const VdbGrid& grid) {
  impl_->grid = grid;
  impl_->numbers = VdbNumbersOf(grid.type).value();
  impl_->leaves = 0;
  impl_->Begin(grid);
}

void VdbWriter::Root(std::span<const std::byte> background, const std::vector<VdbRootTile>& tiles,
                     uint32_t nodes) {
  impl_->background.assign(background.begin(), background.end());
  impl_->Number(int32_t{1});  // one value for each voxel
  impl_->Bytes(background);
  impl_->Number(static_cast<uint32_t>(tiles.size()));
  impl_->Number(nodes);
  for (const VdbRootTile& tile : tiles) {
    impl_->Number(tile.origin);
    impl_->Bytes(std::as_bytes(std::span(tile.value)));
    impl_->Number(static_cast<uint8_t>(tile.active ? 1 : 0));
  }
}

void VdbWriter::Node(const VdbNode& node) {
  if (impl_->places[1] != 0) OutOfOrder("a node after a leaf's values");
  if (node.level == VdbLevel::kUpper) impl_->Number(node.origin);
  impl_->Bytes(std::as_bytes(node.children.words()));
  impl_->Bytes(std::as_bytes(node.active.words()));
  if (node.level == VdbLevel::kLeaf) {
    ++impl_->leaves;
  } else {
    impl_->Values(node.active, node.children, node.values);
  }
}

void VdbWriter::Leaf(const VdbNode& leaf, std::span<const std::byte> values) {
  if (impl_->places[1] == 0) impl_->places[1] = impl_->position();
  if (--impl_->leaves < 0) OutOfOrder("more leaves than there are among the nodes");
  impl_->Bytes(std::as_bytes(leaf.active.words()));
  impl_->Values(leaf.active, VdbMask(0), values);
}

void VdbWriter::End() {
  if (impl_->leaves != 0) OutOfOrder("leaves without values");
  if (impl_->places[1] == 0 && impl_->grid.twin_of.empty()) impl_->places[1] = impl_->position();
  impl_->End();
}

void VdbWriter::BeginOpaque(const VdbGrid& grid) {
  impl_->grid = grid;
  impl_->leaves = 0;
  impl_->Begin(grid);
}

void VdbWriter::Opaque(std::span<const std::byte> bytes) { impl_->Bytes(bytes); }

void VdbWriter::OpaqueValues() {
  // OpenVDB leaves the place open where there is no tree.
  impl_->places[1] = impl_->grid.twin_of.empty() ? impl_->position() : 0;
}

void VdbWriter::Copy(const VdbFile& from, const VdbGrid& grid) {
  BeginOpaque(grid);
  const auto take = [&](int64_t begin, int64_t end) {
    std::vector<std::byte> part;
    for (; begin < end; begin += static_cast<int64_t>(part.size())) {
      part.resize(static_cast<size_t>(std::min<int64_t>(end - begin, kBuffer)));
      from.file().ReadAt(begin, part);
      Opaque(part);
    }
  };
  take(grid.tree, grid.values);
  OpaqueValues();
  take(grid.values, grid.end);
  impl_->End();
}

void VdbWriter::Finish() {
  if (impl_->begun != impl_->grids) OutOfOrder("fewer grids than were announced");
  impl_->Flush();
  const std::string identity = IdentityOf(impl_->content.Hex());
  impl_->out.WriteAt(impl_->identity_at, std::as_bytes(std::span(identity)));
}

}  // namespace tilery
