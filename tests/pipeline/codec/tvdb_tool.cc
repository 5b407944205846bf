// Compresses OpenVDB files and back, for tests.
//
//   tvdb_tool compress IN OUT BOUND    BOUND: "exact", "1%" of each grid's range, or a number
//   tvdb_tool decompress IN OUT
//
// Prints a line for each grid: label, bound, largest error, bytes. Exit codes:
// tests/io/tool_main.h.
#include <cstdlib>
#include <iostream>

#include "pipeline/codec/grid_file.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

GridBound BoundOf(const std::string& text) {
  if (text == "exact") return {GridBound::Kind::kExact, 0};
  if (text.ends_with('%')) return {GridBound::Kind::kShare, std::atof(text.c_str()) / 100};
  return {GridBound::Kind::kAbsolute, std::atof(text.c_str())};
}

int Run(const std::vector<std::string>& args) {
  if (args.size() == 4 && args[0] == "compress") {
    const VdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    const GridBound bound = BoundOf(args[3]);
    for (const GridReport& grid : CompressGrids(from, out, [&](const VdbGrid&) { return bound; })) {
      std::cout << grid.label << ' ' << grid.bound << ' ' << grid.max_error << ' ' << grid.bytes
                << '\n';
    }
    out.Publish(Durability::kRename);
    return 0;
  }
  if (args.size() == 3 && args[0] == "decompress") {
    const TvdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    DecompressGrids(from, out);
    out.Publish(Durability::kRename);
    return 0;
  }
  std::cerr << "tvdb_tool compress IN OUT BOUND | decompress IN OUT\n";
  return 1;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
