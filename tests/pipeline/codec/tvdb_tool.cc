// Compresses OpenVDB files and back, for tests.
//
//   tvdb_tool compress IN OUT BOUND [vq|auto]  BOUND: as pipeline/codec/grid_bounds.h says
//   tvdb_tool decompress IN OUT
//   tvdb_tool samples IN OUT BOUND     what the context network is trained on: for each
//       number its inputs, then i32 shift and error (pipeline/codec/context_coder.h)
//   tvdb_tool leaves IN OUT BOUND      what the nets of the method vq are trained on: for each
//       component of a leaf its mask, 512 i32 in steps of the bound, f64 steps in the range
//
// Prints a line for each grid: label, bound, largest error, bytes, PSNR. Exit codes:
// tests/io/tool_main.h.
#include <fstream>
#include <iostream>

#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_fit.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

int Run(const std::vector<std::string>& args) {
  if ((args.size() == 4 || args.size() == 5) && args[0] == "compress") {
    GridBounds bounds = ParseGridBounds(args[3]);
    if (args.size() == 5) bounds.method = args[4] == "vq" ? GridMethod::kVq : GridMethod::kAuto;
    const VdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    ThreadPool pool(2);
    CompressGrids(from, out, bounds, {.pool = &pool, .devices = {}, .step = {}});
    out.Publish(Durability::kRename);
    for (const GridReport& grid : ReportsOf(TvdbFile(args[2]))) {
      std::cout << grid.about.label << ' ' << grid.bound << ' ' << grid.max_error << ' '
                << grid.bytes << ' ' << grid.psnr().value_or(0) << '\n';
    }
    return 0;
  }
  if (args.size() == 3 && args[0] == "decompress") {
    const TvdbFile from(args[1]);
    OutputFile out(args[2], "tvdb-tool");
    ThreadPool pool(2);
    DecompressGrids(from, out, {.pool = &pool, .devices = {}, .step = {}});
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
  if (args.size() == 4 && args[0] == "leaves") {
    std::ofstream out(args[2], std::ios::binary);
    out.exceptions(std::ios::failbit | std::ios::badbit);
    LeafSamples(VdbFile(args[1]), ParseGridBounds(args[3]),
                [&out](const LeafMask& mask, const BlockNumbers::Leaf& numbers, double range) {
                  out.write(reinterpret_cast<const char*>(mask.data()), sizeof mask);
                  out.write(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
                  out.write(reinterpret_cast<const char*>(&range), sizeof range);
                });
    return 0;
  }
  std::cerr
      << "tvdb_tool compress IN OUT BOUND | decompress IN OUT | samples|leaves IN OUT BOUND\n";
  return 1;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
