// Compresses OpenVDB files and back, for tests.
//
//   tvdb_tool compress IN OUT BOUND    BOUND: as pipeline/codec/grid_bounds.h says
//   tvdb_tool decompress IN OUT
//   tvdb_tool samples IN OUT BOUND     what the context network is trained on: for each
//       number its inputs, then i32 shift and error (pipeline/codec/context_coder.h)
//
// Prints a line for each grid: label, bound, largest error, bytes. Exit codes:
// tests/io/tool_main.h.
#include <fstream>
#include <iostream>

#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_fit.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

int Run(const std::vector<std::string>& args) {
  if (args.size() == 4 && args[0] == "compress") {
    const VdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    ThreadPool pool(2);
    CompressGrids(from, out, ParseGridBounds(args[3]),
                  {.pool = &pool, .device = nullptr, .step = {}});
    out.Publish(Durability::kRename);
    for (const GridReport& grid : ReportsOf(TvdbFile(args[2]))) {
      std::cout << grid.about.label << ' ' << grid.bound << ' ' << grid.max_error << ' '
                << grid.bytes << '\n';
    }
    return 0;
  }
  if (args.size() == 3 && args[0] == "decompress") {
    const TvdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    ThreadPool pool(2);
    DecompressGrids(from, out, {.pool = &pool, .device = nullptr, .step = {}});
    out.Publish(Durability::kRename);
    return 0;
  }
  if (args.size() == 4 && args[0] == "samples") {
    std::ofstream out(args[2], std::ios::binary);
    out.exceptions(std::ios::failbit | std::ios::badbit);
    ContextSamples(
        VdbFile(args[1]), ParseGridBounds(args[3]),
        [&out](std::span<const int8_t, kContextInputs> inputs, int shift, int32_t error) {
          out.write(reinterpret_cast<const char*>(inputs.data()), kContextInputs);
          const int32_t rest[2] = {shift, error};
          out.write(reinterpret_cast<const char*>(rest), sizeof rest);
        });
    return 0;
  }
  std::cerr << "tvdb_tool compress IN OUT BOUND | decompress IN OUT | samples IN OUT BOUND\n";
  return 1;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
