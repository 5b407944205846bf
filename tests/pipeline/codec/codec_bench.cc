// Measures how fast the whole numbers of OpenVDB files are coded under the context model.
//
//   codec_bench FILE... BOUND
//
// Prints a table: numbers of active voxels (each component for itself) per second, in one thread on the CPU.
// What reads, packs and writes files is left out.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "pipeline/codec/grid_fit.h"
#include "pipeline/codec/grid_regions.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

struct Work {
  RegionCoding coding;
  std::vector<BlockNumbers> blocks;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Work> WorkOf(const VdbFile& file, const GridBounds& bounds) {
  std::vector<Work> all;
  for (const VdbGrid& grid : file.grids()) {
    const auto numbers = VdbNumbersOf(grid.type);
    if (!numbers || !grid.twin_of.empty()) continue;
    const GridSurvey survey = SurveyOf(file, grid, {});
    if (!(survey.most > survey.least)) continue;
    Work work{FitGrid(file, grid, survey, bounds.For(grid), {}), {}};
    if (work.coding.contexts.empty()) continue;
    RegionReader reader(file, grid);
    for (Region region; reader.Next(&region);) {
      for (BlockNumbers& block : NumbersOf(region, work.coding, nullptr).blocks)
        work.blocks.push_back(std::move(block));
    }
    all.push_back(std::move(work));
  }
  return all;
}

int Run(const std::vector<std::string>& args) {
  if (args.size() < 2) {
    std::cerr << "codec_bench FILE... BOUND\n";
    return 1;
  }
  std::vector<Work> all;
  for (size_t i = 0; i + 1 < args.size(); ++i) {
    for (Work& work : WorkOf(VdbFile(args[i]), ParseGridBounds(args.back())))
      all.push_back(std::move(work));
  }
  int64_t numbers = 0, bytes = 0;
  double encode = 0, decode = 0;
  for (const Work& work : all) {
    std::vector<std::vector<std::byte>> streams;
    const double start = Seconds();
    for (const BlockNumbers& block : work.blocks)
      streams.push_back(EncodeNumbers(block, work.coding));
    const double encoded = Seconds();
    for (size_t i = 0; i < streams.size(); ++i) {
      BlockNumbers back = work.blocks[i];
      DecodeNumbers(streams[i], work.coding, &back);
      if (back.values != work.blocks[i].values) throw std::runtime_error("other numbers come back");
    }
    decode += Seconds() - encoded;
    encode += encoded - start;
    for (size_t i = 0; i < streams.size(); ++i) {
      for (const LeafMask& mask : work.blocks[i].masks)
        numbers += CountOn(mask) * work.coding.numbers.components;
      bytes += static_cast<int64_t>(streams[i].size());
    }
  }
  const auto rate = [&](double seconds) { return static_cast<double>(numbers) / seconds / 1e6; };
  std::printf("%lld numbers, %lld bytes\nCPU, one thread: encode %.2f M numbers/s, decode %.2f\n",
              static_cast<long long>(numbers), static_cast<long long>(bytes), rate(encode),
              rate(decode));
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
