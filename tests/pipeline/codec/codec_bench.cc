// Measures how fast the whole numbers of OpenVDB files are coded under the context model.
//
//   codec_bench FILE... BOUND [BLOCKS]
//
// BLOCKS: calls of a GPU have so many blocks at least, those of a grid again and again, as they
// come from grids that are larger.
//
// Prints numbers of active voxels (each component for itself) per second: in one thread on the CPU,
// and on a GPU, if there is one, with copies to and from it, several calls at once. What reads,
// packs and writes files is left out.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>

#include "pipeline/codec/grid_fit.h"
#include "pipeline/codec/grid_regions.h"
#include "tests/io/tool_main.h"
#include "tests/pipeline/codec/other_device.h"

namespace tilery {
namespace {

struct Work {
  RegionCoding coding;
  std::vector<BlockNumbers> blocks, leaves;  // with their numbers, and without
  std::vector<std::vector<std::byte>> encoded;

  std::vector<std::span<const std::byte>> streams() const {
    return {encoded.begin(), encoded.end()};
  }
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
    Work work;
    work.coding = FitGrid(file, grid, survey, bounds, {});
    if (work.coding.contexts.empty()) continue;
    RegionReader reader(file, grid);
    for (Region region; reader.Next(&region);) {
      for (BlockNumbers& block : NumbersOf(region, work.coding, nullptr).blocks)
        work.blocks.push_back(std::move(block));
    }
    for (const BlockNumbers& block : work.blocks) {
      work.leaves.emplace_back(block.values.size());
      for (size_t i = 0; i < block.places.size(); ++i)
        work.leaves.back().Add(block.places[i], block.masks[i]);
    }
    all.push_back(std::move(work));
  }
  return all;
}

void Repeat(size_t blocks, Work* work) {
  const size_t once = work->blocks.size();
  for (size_t b = once; b < blocks; ++b) {
    work->blocks.push_back(work->blocks[b - once]);
    work->leaves.push_back(work->leaves[b - once]);
    work->encoded.push_back(work->encoded[b - once]);
  }
}

int Run(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  size_t blocks = 0;
  if (args.size() >= 3 && args.back().find_first_not_of("0123456789") == std::string::npos) {
    blocks = std::stoul(args.back());
    args.pop_back();
  }
  if (args.size() < 2) {
    std::cerr << "codec_bench FILE... BOUND [BLOCKS]\n";
    return 1;
  }
  std::vector<Work> all;
  for (size_t i = 0; i + 1 < args.size(); ++i) {
    for (Work& work : WorkOf(VdbFile(args[i]), ParseGridBounds(args.back())))
      all.push_back(std::move(work));
  }
  int64_t numbers = 0, bytes = 0;
  double encode = 0, decode = 0;
  for (Work& work : all) {
    std::vector<std::vector<std::byte>>& streams = work.encoded;
    const double start = Seconds();
    for (const BlockNumbers& block : work.blocks)
      streams.push_back(EncodeNumbers(block, work.coding));
    const double encoded = Seconds();
    for (size_t i = 0; i < streams.size(); ++i) {
      BlockNumbers back = work.leaves[i];
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
  const auto rate = [](int64_t count, double seconds) {
    return static_cast<double>(count) / seconds / 1e6;
  };
  std::printf("%lld numbers, %lld bytes\nCPU, one thread: encode %.2f M numbers/s, decode %.2f\n",
              static_cast<long long>(numbers), static_cast<long long>(bytes), rate(numbers, encode),
              rate(numbers, decode));
  const auto device = OtherDevice();
  if (!device) return 0;
  for (Work& work : all) Repeat(blocks, &work);
  numbers = 0;
  for (const Work& work : all) {
    for (const BlockNumbers& block : work.blocks) {
      for (const LeafMask& mask : block.masks)
        numbers += CountOn(mask) * work.coding.numbers.components;
    }
  }
  for (const int threads : {1, 2, 4, 8, 16}) {
    double seconds[2] = {};
    const int kRounds = blocks > 0 ? 3 : 12;
    for (const bool decoding : {false, true}) {
      for (const bool measured : {false, true}) {
        std::atomic<size_t> next{0};
        const double start = Seconds();
        std::vector<std::thread> pool;
        for (int t = 0; t < threads; ++t) {
          pool.emplace_back([&] {
            for (size_t i = next++; i < all.size() * kRounds; i = next++) {
              const Work& work = all[i % all.size()];
              if (!decoding) {
                device->Encode(work.blocks, work.coding.contexts);
                continue;
              }
              std::vector<BlockNumbers> back = work.leaves;
              device->Decode(work.streams(), work.coding.contexts, back);
            }
          });
        }
        for (std::thread& thread : pool) thread.join();
        if (measured) seconds[decoding ? 1 : 0] = Seconds() - start;
      }
    }
    std::printf("other device, %d calls at once: encode %.0f M numbers/s, decode %.0f\n", threads,
                rate(kRounds * numbers, seconds[0]), rate(kRounds * numbers, seconds[1]));
  }
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
