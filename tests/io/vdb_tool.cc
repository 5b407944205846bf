// Copies an OpenVDB file for tests: every node and value is read and written anew, but for grids of
// types that are passed on as bytes.
//
//   vdb_tool copy IN OUT
//   vdb_tool walk IN         reads all of it; one line for each grid: label, type, nodes of each
//                            level, active voxels in leaves
//
// Errors go to standard error; exit 3 for inputs, 4 for outputs, 1 otherwise.
#include <array>
#include <iostream>
#include <vector>

#include "io/error.h"
#include "io/vdb_writer.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

void CopyTree(const VdbFile& file, const VdbGrid& grid, VdbWriter& writer) {
  writer.Begin(grid);
  VdbTreeReader tree(file, grid);
  writer.Root(std::as_bytes(std::span(tree.background())), tree.root_tiles(), tree.upper_nodes());
  VdbNode node;
  while (tree.Next(&node)) writer.Node(node);
  VdbTreeReader again(file, grid);
  std::vector<std::byte> values(kVdbLeafVoxels * again.numbers().bytes());
  while (again.Next(&node)) {
    if (node.level != VdbLevel::kLeaf) continue;
    again.ReadLeaf(node, values);
    writer.Leaf(node, values);
  }
  again.CheckEnd(true);
  writer.End();
}

void Copy(const std::string& from, const std::string& to) {
  const VdbFile file(from);
  OutputFile out(to, "vdb-tool");
  VdbWriter writer(out, file.version(), file.metadata(), static_cast<int32_t>(file.grids().size()));
  for (const VdbGrid& grid : file.grids()) {
    if (VdbNumbersOf(grid.type) && grid.twin_of.empty()) {
      CopyTree(file, grid, writer);
    } else {
      writer.Copy(file, grid);
    }
  }
  writer.Finish();
  out.Publish(Durability::kRename);
}

void Walk(const std::string& from) {
  const VdbFile file(from);
  for (const VdbGrid& grid : file.grids()) {
    std::cout << grid.label << ' ' << grid.type;
    if (VdbNumbersOf(grid.type) && grid.twin_of.empty()) {
      VdbTreeReader tree(file, grid);
      std::vector<std::byte> values(kVdbLeafVoxels * tree.numbers().bytes());
      std::array<int64_t, 3> nodes{};
      int64_t active = 0;
      for (VdbNode node; tree.Next(&node);) {
        ++nodes[static_cast<size_t>(node.level)];
        if (node.level != VdbLevel::kLeaf) continue;
        active += node.active.CountOn();
        tree.ReadLeaf(node, values);
      }
      tree.CheckEnd(true);
      for (const int64_t count : nodes) std::cout << ' ' << count;
      std::cout << ' ' << active;
    }
    std::cout << '\n';
  }
}

int Run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "copy") return Copy(args[1], args[2]), 0;
  if (args.size() == 2 && args[0] == "walk") return Walk(args[1]), 0;
  std::cerr << "vdb_tool copy IN OUT | walk IN\n";
  return 1;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
