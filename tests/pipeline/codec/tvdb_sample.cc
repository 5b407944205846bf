#include "tests/pipeline/codec/tvdb_sample.h"

#include <array>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/vdb_writer.h"
#include "pipeline/codec/grid_file.h"

namespace tilery {
namespace {

VdbGrid About(const std::string& name, const std::string& type) {
  VdbGrid grid;
  grid.name = grid.stored = name;
  grid.type = type;
  grid.packing = VdbPacking::kZip | VdbPacking::kActiveMask;
  const double scale[15] = {0.25, 0.25, 0.25, 0.25, 0.25, 0.25};
  grid.transform = {"UniformScaleMap",
                    std::string(reinterpret_cast<const char*>(scale), sizeof scale)};
  return grid;
}

template <typename Number>
std::vector<std::byte> Bytes(const std::vector<Number>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

template <typename Number>
VdbNode Inner(VdbLevel level, const VdbCoord& origin, const std::vector<Number>& background) {
  const int places = VdbPlaces(level);
  VdbNode node{level, origin, VdbMask(places), VdbMask(places), {}};
  for (int place = 0; place < places; ++place) {
    const std::vector<std::byte> value = Bytes(background);
    node.values.insert(node.values.end(), value.begin(), value.end());
  }
  return node;
}

int PlaceOf(VdbLevel level, const VdbCoord& offset) {
  const int side = VdbEdge(level) / VdbPlaceEdge(level), edge = VdbPlaceEdge(level);
  return (offset[0] / edge * side + offset[1] / edge) * side + offset[2] / edge;
}

void SetTile(VdbNode* node, const VdbCoord& offset, float value, bool on) {
  const int place = PlaceOf(node->level, offset);
  std::memcpy(&node->values[static_cast<size_t>(place) * sizeof value], &value, sizeof value);
  if (on) node->active.SetOn(place);
}

void AddChild(VdbNode* node, const VdbCoord& offset) {
  const int place = PlaceOf(node->level, offset);
  const size_t bytes = node->values.size() / static_cast<size_t>(node->children.places());
  node->children.SetOn(place);
  std::memset(&node->values[static_cast<size_t>(place) * bytes], 0, bytes);
}

double ValueAt(const VdbCoord& origin, int voxel) {
  return origin[0] + voxel / 64 + 10 * (origin[1] + voxel / 8 % 8) + 100 * (origin[2] + voxel % 8);
}

void WriteDensity(VdbWriter& writer) {
  VdbGrid about = About("density", "Tree_float_5_4_3");
  about.metadata = {{"class", "string", "fog volume"}, {"artist", "string", "somebody"}};
  writer.Begin(about);
  const std::vector<float> background = {0.5f}, far = {5.0f};
  const std::vector<std::byte> far_bytes = Bytes(far);
  const std::string far_value(reinterpret_cast<const char*>(far_bytes.data()), far_bytes.size());
  writer.Root(Bytes(background), {{{4096, 0, 0}, far_value, true}}, 2);
  VdbNode leaf{VdbLevel::kLeaf, {}, VdbMask(0), VdbMask(kVdbLeafVoxels), {}};
  for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    if ((voxel / 64 + voxel / 8 % 8 + voxel % 8) % 2 == 0) leaf.active.SetOn(voxel);
  }
  // Below the corner of all axes, and above it.
  VdbNode upper = Inner(VdbLevel::kUpper, {-4096, -4096, -4096}, background);
  AddChild(&upper, {3968, 3968, 3968});
  VdbNode lower = Inner(VdbLevel::kLower, {-128, -128, -128}, background);
  AddChild(&lower, {120, 120, 120});
  for (const VdbNode& node : {upper, lower, leaf}) writer.Node(node);
  upper = Inner(VdbLevel::kUpper, {0, 0, 0}, background);
  AddChild(&upper, {0, 0, 0});
  SetTile(&upper, {128, 0, 0}, 4, false);
  AddChild(&upper, {256, 0, 0});
  writer.Node(upper);
  lower = Inner(VdbLevel::kLower, {0, 0, 0}, background);
  SetTile(&lower, {8, 8, 8}, 3, true);
  writer.Node(lower);
  lower = Inner(VdbLevel::kLower, {256, 0, 0}, background);
  AddChild(&lower, {0, 0, 0});
  writer.Node(lower);
  writer.Node(leaf);
  for (const VdbCoord& origin : {VdbCoord{-8, -8, -8}, VdbCoord{256, 0, 0}}) {
    std::vector<float> values;
    for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel)
      values.push_back(static_cast<float>(ValueAt(origin, voxel)));
    leaf.origin = origin;
    writer.Leaf(leaf, Bytes(values));
  }
  writer.End();
}

void WriteVelocity(VdbWriter& writer) {
  writer.Begin(About("velocity", "Tree_vec3d_5_4_3"));
  const std::vector<double> background = {0, 0, 0};
  writer.Root(Bytes(background), {}, 1);
  VdbNode upper = Inner(VdbLevel::kUpper, {-4096, -4096, -4096}, background);
  AddChild(&upper, {3968, 3968, 3968});
  VdbNode lower = Inner(VdbLevel::kLower, {-128, -128, -128}, background);
  AddChild(&lower, {120, 120, 120});
  VdbNode leaf{VdbLevel::kLeaf, {-8, -8, -8}, VdbMask(0), VdbMask(kVdbLeafVoxels), {}};
  std::vector<double> values;
  for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    leaf.active.SetOn(voxel);
    const double value = ValueAt(leaf.origin, voxel);
    values.insert(values.end(), {value, -value, value / 3});
  }
  for (const VdbNode& node : {upper, lower, leaf}) writer.Node(node);
  writer.Leaf(leaf, Bytes(values));
  writer.End();
}

void Write(const std::string& path) {
  const std::string source = path + ".vdb";
  {
    OutputFile out(source, "sample");
    VdbWriter writer(out, 224, {{"shot", "string", "s010"}}, 4);
    WriteDensity(writer);
    WriteVelocity(writer);
    VdbGrid again = About("again", "Tree_float_5_4_3");
    again.twin_of = "density";
    writer.BeginOpaque(again);
    writer.OpaqueValues();
    writer.End();
    writer.BeginOpaque(About("mask", "Tree_bool_5_4_3"));
    writer.Opaque(std::vector<std::byte>(100, std::byte{7}));
    writer.OpaqueValues();
    writer.Opaque(std::vector<std::byte>(50, std::byte{9}));
    writer.End();
    writer.Finish();
    out.Publish(Durability::kRename);
  }
  OutputFile out(path, "sample");
  CompressGrids(VdbFile(source), out, ParseGridBounds("lossless"));
  out.Publish(Durability::kRename);
}

}  // namespace
}  // namespace tilery

int WriteTvdbSample(const char* path) {
  try {
    tilery::Write(path);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
