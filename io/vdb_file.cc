#include "io/vdb_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "io/container.h"

namespace tilery {
namespace {

constexpr int64_t kMagic = 0x56444220;
constexpr uint32_t kOldest = 222, kNewest = 224;
constexpr char kTwinMark = '\x1e';  // before the number that tells grids of one name apart
constexpr std::string_view kHalfSuffix = "_HalfFloat";
// What OpenVDB notes of each packed leaf, so that it can load them late. It grows with the leaves,
// nobody needs it, and it would not be true of what is written anew.
constexpr std::string_view kDelayedLoad = "file_delayed_load";
constexpr int64_t kLeastGrid = 3 * 4 + 3 * 8;  // bytes of an entry of the directory

// Bytes of a map's numbers. Source: openvdb/math/Maps.h.
std::optional<int64_t> BytesOfMap(const std::string& type) {
  constexpr int64_t kVector = 3 * 8, kMatrix = 16 * 8;
  static const std::map<std::string, int64_t> kBytes = {
      {"AffineMap", kMatrix},
      {"UnitaryMap", kMatrix},
      {"TranslationMap", kVector},
      {"ScaleMap", 5 * kVector},
      {"UniformScaleMap", 5 * kVector},
      {"ScaleTranslateMap", 6 * kVector},
      {"UniformScaleTranslateMap", 6 * kVector},
  };
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? std::nullopt : std::optional(found->second);
}

// Of a frustum: a box, taper and depth; then follows a linear map with its type.
constexpr int64_t kFrustum = 6 * 8 + 2 * 8;

std::vector<VdbMeta> ReadMetadata(VdbInput& in) {
  constexpr int64_t kLeast = 3 * 4;
  const auto count = in.Number<uint32_t>();
  if (count > in.left() / kLeast) {
    in.Fail(std::to_string(count) + " entries of metadata are more than the file can hold");
  }
  std::vector<VdbMeta> all;
  for (uint32_t i = 0; i < count; ++i) {
    VdbMeta meta;
    meta.name = in.Text();
    meta.type = in.Text();
    if (meta.name == kDelayedLoad) {
      in.Skip(in.Number<uint32_t>());
      continue;
    }
    meta.value = in.Text();
    all.push_back(std::move(meta));
  }
  return all;
}

VdbTransform ReadTransform(VdbInput& in) {
  VdbTransform transform;
  transform.type = in.Text();
  if (const auto bytes = BytesOfMap(transform.type)) {
    transform.bytes = in.Bytes(*bytes);
    return transform;
  }
  if (transform.type != "NonlinearFrustumMap")
    in.Fail("a transform of the unknown type '" + Printable(transform.type, 60) + "'");
  transform.bytes = in.Bytes(kFrustum);
  const std::string second = in.Text();
  const auto bytes = BytesOfMap(second);
  if (!bytes) in.Fail("a frustum over a map of the unknown type '" + Printable(second, 60) + "'");
  const auto length = static_cast<uint32_t>(second.size());
  transform.bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  transform.bytes += second + in.Bytes(*bytes);
  return transform;
}

}  // namespace

bool VdbIsMap(const VdbTransform& transform) {
  const auto has = static_cast<int64_t>(transform.bytes.size());
  if (transform.type != "NonlinearFrustumMap") return BytesOfMap(transform.type) == has;
  uint32_t length = 0;
  constexpr int64_t kBefore = kFrustum + sizeof length;
  if (has < kBefore) return false;
  std::memcpy(&length, &transform.bytes[kFrustum], sizeof length);
  if (length > has - kBefore) return false;
  const auto second = BytesOfMap(transform.bytes.substr(kBefore, length));
  return second && *second == has - kBefore - length;
}

void VdbInput::Fail(const std::string& why) const {
  ThrowInput(file_.path(), "damaged OpenVDB file: " + why + " (at byte " +
                               std::to_string(position()) + " of " + std::to_string(file_.size()) +
                               ")");
}

void VdbInput::Read(std::span<std::byte> into) {
  if (static_cast<int64_t>(into.size()) > left() || input_.Read(into) < into.size())
    Fail("it ends early");
}

void VdbInput::Skip(int64_t bytes) {
  if (bytes < 0 || bytes > left() || input_.Skip(bytes) < bytes) Fail("it ends early");
}

std::string VdbInput::Bytes(int64_t count) {
  if (count < 0 || count > left()) Fail("it ends early");
  std::string bytes(static_cast<size_t>(count), '\0');
  Read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string VdbInput::Text() { return Bytes(Number<uint32_t>()); }

std::optional<VdbNumbers> VdbNumbersOf(const std::string& type) {
  static const std::map<std::string, VdbNumbers> kKnown = {
      {"Tree_float_5_4_3", {DType::kF32, 1}},
      {"Tree_double_5_4_3", {DType::kF64, 1}},
      {"Tree_vec3s_5_4_3", {DType::kF32, 3}},
      {"Tree_vec3d_5_4_3", {DType::kF64, 3}},
  };
  const auto found = kKnown.find(type);
  return found == kKnown.end() ? std::nullopt : std::optional(found->second);
}

std::string VdbValueTypeOf(const VdbGrid& grid) {
  constexpr std::string_view kBefore = "Tree_", kAfter = "_5_4_3";
  std::string type = grid.type;
  if (type.starts_with(kBefore) && type.ends_with(kAfter))
    type = type.substr(kBefore.size(), type.size() - kBefore.size() - kAfter.size());
  return Printable(type, 60);
}

void NameGrids(std::vector<VdbGrid>& grids) {
  std::map<std::string, int> seen, all;
  for (VdbGrid& grid : grids) {
    grid.name = grid.stored.substr(0, grid.stored.find(kTwinMark));
    ++all[grid.name];
  }
  for (VdbGrid& grid : grids) {
    grid.label = grid.name;
    if (all[grid.name] > 1) grid.label += "[" + std::to_string(seen[grid.name]++) + "]";
  }
}

bool IsVdbFile(const std::filesystem::path& path) {
  const InputFile file(path);
  int64_t magic = 0;
  return file.ReadSome(0, std::as_writable_bytes(std::span(&magic, 1))) == sizeof magic &&
         magic == kMagic;
}

VdbFile::VdbFile(const std::filesystem::path& path) : file_(path) {
  VdbInput in(file_, 0, file_.size());
  if (file_.size() < 8 || in.Number<int64_t>() != kMagic)
    ThrowInput(path, "this is no OpenVDB file");
  version_ = in.Number<uint32_t>();
  if (version_ < kOldest || version_ > kNewest) {
    ThrowInput(path, "version " + std::to_string(version_) + " of the OpenVDB file format; " +
                         std::to_string(kOldest) + " to " + std::to_string(kNewest) +
                         " can be read: open it in a newer program and save it again");
  }
  in.Skip(2 * 4);  // version of the library
  if (in.Number<uint8_t>() == 0)
    ThrowInput(path, "an OpenVDB stream without offsets: save it as a file");
  constexpr int64_t kIdentity = 36;
  in.Skip(kIdentity);
  metadata_ = ReadMetadata(in);
  const auto count = in.Number<int32_t>();
  if (count < 0 || count > in.left() / kLeastGrid)
    in.Fail(std::to_string(count) + " grids are more than the file can hold");

  std::set<std::string> names;
  for (int64_t at = in.position(); static_cast<int32_t>(grids_.size()) < count;) {
    VdbInput entry(file_, at, file_.size());
    VdbGrid grid;
    grid.stored = entry.Text();
    grid.type = entry.Text();
    if (grid.type.ends_with(kHalfSuffix)) {
      grid.half = true;
      grid.type.resize(grid.type.size() - kHalfSuffix.size());
    }
    grid.twin_of = entry.Text();
    grid.begin = entry.Number<int64_t>();
    grid.values = entry.Number<int64_t>();
    grid.end = entry.Number<int64_t>();
    if (!grid.twin_of.empty()) grid.values = grid.end;  // it has no tree of its own
    const bool in_order = grid.begin == entry.position() && grid.values >= grid.begin &&
                          grid.end >= grid.values && grid.end <= file_.size();
    if (!in_order) {
      entry.Fail("grid '" + Printable(grid.stored, 60) + "' is said to lie at bytes " +
                 std::to_string(grid.begin) + ", " + std::to_string(grid.values) + " and " +
                 std::to_string(grid.end));
    }
    if (!grid.twin_of.empty() && !names.contains(grid.twin_of)) {
      entry.Fail("grid '" + Printable(grid.stored, 60) + "' shares the tree of '" +
                 Printable(grid.twin_of, 60) + "', which does not come before it");
    }
    VdbInput body(file_, grid.begin, grid.end);
    grid.packing = body.Number<uint32_t>();
    constexpr uint32_t kAll = VdbPacking::kZip | VdbPacking::kActiveMask | VdbPacking::kBlosc;
    if ((grid.packing & ~kAll) != 0)
      body.Fail("numbers packed in the unknown way " + std::to_string(grid.packing));
    grid.metadata = ReadMetadata(body);
    grid.transform = ReadTransform(body);
    grid.tree = body.position();
    if (grid.tree > grid.values)
      body.Fail("the tree of grid '" + Printable(grid.stored, 60) + "' has no room");
    names.insert(grid.stored);
    at = grid.end;
    grids_.push_back(std::move(grid));
  }
  NameGrids(grids_);
}

}  // namespace tilery
