// How fast an assemble unit turns bricks into a file, and in how much memory.
//
//   assemble_bench FOLDER FORMAT DTYPE ZxYxX [TILE OVERLAP UNIT_TILES]     (FORMAT: npy png tiff
//   nifti)
//
// Makes an input, the bricks of all units (constant samples) and the output below FOLDER, removes
// them again, and prints one line: megabytes of output, seconds, MB/s, time per stage and the peak
// of private memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "io/brick.h"
#include "worker/assemble_unit.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

Index ParseShape(const std::string& text) {
  Index shape{1, 1, 1};
  std::sscanf(text.c_str(), "%ldx%ldx%ld", &shape[0], &shape[1], &shape[2]);
  return shape;
}

ItemParams MakeParams(const std::string& format, DType dtype, bool volume, int64_t tile,
                      int64_t overlap) {
  ItemParams params;
  params.dims = volume ? 3 : 2;
  for (int axis = volume ? 0 : 1; axis < 3; ++axis) {
    params.tiling.tile[axis] = tile;
    params.tiling.overlap[axis] = overlap;
  }
  Transfer& t = params.transfer;
  t.in_dtype = t.out_dtype = dtype;
  t.raw_hi = IsInteger(dtype) ? HighestOf(dtype) : 1;
  t.model_in = t.model_out = t.accumulators = t.out_channels = 1;
  Pass pass;
  pass.in = pass.out = {0};
  t.passes = {pass};
  params.output.format = format;
  params.output.dtype = dtype;
  params.output.dims = static_cast<uint8_t>(params.dims);
  return params;
}

// A sparse .npy is as good as any: only its header is read.
void MakeInput(const fs::path& path, const Header& header) {
  OutputFile file(path, "bench.0.0");
  WriteSpec spec;
  spec.header = header;
  const auto writer = CreateWriter(file, spec);
  const std::vector<std::byte> plane(static_cast<size_t>(header.shape[1] * header.shape[2]) *
                                     DTypeSize(header.dtype));
  for (int64_t z = 0; z < header.shape[0]; ++z) {
    const Box band{{z, 0, 0}, {z + 1, header.shape[1], header.shape[2]}};
    writer->Write(band,
                  DenseView(plane.data(), header.dtype, 1, band.shape(), Layout::kInterleaved));
  }
  writer->Finish();
  file.Publish(Durability::kRename);
}

Brick MakeBrick(const fs::path& scratch, const ItemGeometry& geometry, int64_t block, DType dtype) {
  const Brick brick{block, std::to_string(block) + ".brick", HashText(std::to_string(block))};
  BrickWriter writer(scratch / brick.file, "0.0." + std::to_string(block), brick.key);
  const auto add = [&](const std::string& name, DType type, const Box& box) {
    std::vector<std::byte> samples(static_cast<size_t>(box.voxels()) * DTypeSize(type));
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i] = static_cast<std::byte>(i * i >> 7 & 0x3f);
    writer.Add({name, type, 1, box},
               DenseView(samples.data(), type, 1, box.shape(), Layout::kInterleaved));
  };
  if (!geometry.interior(block).empty()) add("interior", dtype, geometry.interior(block));
  int n = 0;
  for (const SeamCell& cell : geometry.seams(block)) {
    add("seam." + std::to_string(n++), DType::kF32, cell.box);
  }
  writer.Finish();
  return brick;
}

int Main(int argc, char** argv) {
  if (argc != 5 && argc != 8) {
    std::fputs("usage: assemble_bench FOLDER FORMAT DTYPE ZxYxX [TILE OVERLAP UNIT_TILES]\n",
               stderr);
    return 2;
  }
  const fs::path folder = fs::path(argv[1]) / "assemble_bench";
  const std::string format = argv[2];
  const DType dtype = DTypeFromName(argv[3]);
  const Index shape = ParseShape(argv[4]);
  const bool volume = shape[0] > 1;
  fs::create_directories(folder);

  auto context = std::make_shared<WorkerContext>();
  context->work = context->scratch = folder;
  const int64_t tile = argc == 8 ? std::atoll(argv[5]) : volume ? 128 : 512;
  const int64_t overlap = argc == 8 ? std::atoll(argv[6]) : volume ? 32 : 64;
  context->params = {MakeParams(format, dtype, volume, tile, overlap)};
  UnitTask task;
  UnitWork& work = task.lease.work;
  work.kind = UnitKind::kAssemble;
  work.input = folder / "input.npy";
  work.output = folder / ("output." + format);
  work.header.format = "npy";
  work.header.dtype = dtype;
  work.header.dims = context->params[0].output.dims;
  work.header.shape = shape;
  work.sizing.tiles = argc == 8 ? std::atoll(argv[7]) : 27;
  work.item_key = std::string(32, 'a');
  MakeInput(work.input, work.header);
  work.stamp = StampOf(work.input).value();
  work.header = OpenReader(work.input)->header();
  task.attempt = "1.0.1";
  task.geometry =
      std::make_shared<const ItemGeometry>(shape, context->params[0].tiling, work.sizing);
  task.lease.unit = task.geometry->units();
  for (int64_t block = 0; block < task.geometry->units(); ++block) {
    work.bricks.push_back(MakeBrick(folder, *task.geometry, block, dtype));
  }

  Profile profile;
  HostBuffers buffers(256 << 20);
  UnitEnv env;
  env.context = context;
  env.profile = &profile;
  env.buffers = &buffers;
  ThreadPool encoders(static_cast<int>(std::thread::hardware_concurrency()));
  env.encoders = &encoders;
  const int64_t before = PrivateMemory();
  std::atomic<bool> over{false};
  std::atomic<int64_t> peak{0};
  std::thread watch([&] {
    while (!over) {
      peak = std::max(peak.load(), PrivateMemory());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  RunAssemble(env, task);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  over = true;
  watch.join();
  fs::remove_all(folder);

  const double megabytes =
      static_cast<double>(Product(shape)) * static_cast<double>(DTypeSize(dtype)) / 1e6;
  std::printf("%s %s %s units=%ld seam=%.0fMB: %.0f MB in %.2f s = %.0f MB/s;", format.c_str(),
              argv[3], argv[4], static_cast<long>(task.geometry->units()),
              static_cast<double>(task.geometry->seam_bytes()) / 1e6, megabytes, seconds,
              megabytes / seconds);
  const auto totals = profile.totals();
  for (const Stage stage : {Stage::kRead, Stage::kBlend, Stage::kEncode, Stage::kWrite}) {
    std::printf(" %s %.2f s", StageName(stage), totals[static_cast<size_t>(stage)].s);
  }
  std::printf("; private memory +%.0f MB\n", static_cast<double>(peak - before) / 1e6);
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::Main(argc, argv); }
