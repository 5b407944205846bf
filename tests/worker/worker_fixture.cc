#include "tests/worker/worker_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "io/file.h"

namespace tilery {
namespace fs = std::filesystem;

WorkerTest::WorkerTest() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  dir_ = fs::temp_directory_path() /
         ("tilery-worker-" + std::to_string(getpid()) + "-" + info->name());
  fs::remove_all(dir_);
  scratch_ = dir_ / "scratch";
  out_ = dir_ / "out";
  fs::create_directories(scratch_);
  fs::create_directories(out_);
  context_.work = dir_ / "work";
  context_.scratch = scratch_;
  context_.numerics_key = std::string(32, 'e');
  fs::create_directories(context_.work);
}

WorkerTest::~WorkerTest() {
  runner_.reset();
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

Tiling WorkerTest::Tiles(const Index& tile, const Index& overlap, int64_t scale) {
  Tiling tiling;
  tiling.tile = tile;
  tiling.overlap = overlap;
  for (int axis = tile[0] == 1 ? 1 : 0; axis < 3; ++axis) tiling.scale[axis] = Rational::Of(scale, 1);
  return tiling;
}

int32_t WorkerTest::AddParams(const std::string& format, DType dtype, int32_t channels,
                              const Tiling& tiling) {
  ItemParams params;
  params.tiling = tiling;
  Transfer& t = params.transfer;
  t.in_dtype = t.out_dtype = dtype;
  t.raw_lo = IsInteger(dtype) ? LowestOf(dtype) : 0;
  t.raw_hi = IsInteger(dtype) ? HighestOf(dtype) : 1;
  t.model_in = t.model_out = t.accumulators = t.out_channels = channels;
  Pass pass;
  for (int32_t c = 0; c < channels; ++c) {
    pass.in.push_back(c);
    pass.out.push_back(c);
  }
  pass.out_count = channels;
  t.passes = {pass};
  params.output.format = format;
  params.output.dtype = dtype;
  params.output.channels = channels;
  params.output.dims = params.dims = format == "npy" ? 3 : 2;
  context_.params.push_back(params);
  return static_cast<int32_t>(context_.params.size()) - 1;
}

std::vector<std::byte> WorkerTest::Noise(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> noise(bytes);
  for (auto& byte : noise) byte = static_cast<std::byte>(random());
  return noise;
}

fs::path WorkerTest::Write(const std::string& name, const std::string& format, DType dtype,
                           int32_t channels, const Index& shape,
                           const std::vector<std::byte>& samples) {
  const fs::path path = dir_ / name;
  OutputFile file(path, "test.0.1");
  WriteSpec spec;
  spec.header.format = format;
  spec.header.dtype = dtype;
  spec.header.channels = channels;
  spec.header.shape = shape;
  spec.header.dims = format == "npy" ? 3 : 2;
  const auto writer = CreateWriter(file, spec);
  writer->Write(Box::Whole(shape),
                DenseView(samples.data(), dtype, channels, shape, Layout::kInterleaved));
  writer->Finish();
  file.Publish(Durability::kRename);
  return path;
}

std::vector<std::byte> WorkerTest::ReadAll(const fs::path& path, Header* header) {
  const auto reader = OpenReader(path);
  const Header& h = reader->header();
  if (header != nullptr) *header = h;
  std::vector<std::byte> samples(static_cast<size_t>(Product(h.shape) * h.channels) *
                                 DTypeSize(h.dtype));
  reader->Read(Box::Whole(h.shape),
               DenseView(samples.data(), h.dtype, h.channels, h.shape, Layout::kInterleaved));
  reader->CheckEnd();
  return samples;
}

std::vector<std::byte> WorkerTest::Nearest(const std::vector<std::byte>& samples, const Index& shape,
                                           int64_t voxel_bytes, const Scale& scale) {
  Index out;
  for (int axis = 0; axis < 3; ++axis) out[axis] = scale[axis].Ceil(shape[axis]);
  std::vector<std::byte> result(static_cast<size_t>(Product(out) * voxel_bytes));
  std::byte* into = result.data();
  for (int64_t z = 0; z < out[0]; ++z) {
    for (int64_t y = 0; y < out[1]; ++y) {
      for (int64_t x = 0; x < out[2]; ++x, into += voxel_bytes) {
        const int64_t from = ((z * scale[0].den / scale[0].num) * shape[1] +
                              y * scale[1].den / scale[1].num) * shape[2] +
                             x * scale[2].den / scale[2].num;
        std::memcpy(into, samples.data() + from * voxel_bytes, static_cast<size_t>(voxel_bytes));
      }
    }
  }
  return result;
}

TestItem WorkerTest::MakeItem(const fs::path& input, const std::string& output, int32_t params,
                              int64_t tiles, bool staged) {
  TestItem item;
  UnitWork& work = item.base;
  work.input = input;
  work.output = out_ / output;
  work.item = next_unit_;
  work.item_key = HashText(input.native() + std::to_string(params));
  work.stamp = StampOf(input).value();
  try {
    work.header = OpenReader(input)->header();
  } catch (const Error&) {
    // An input that is no longer what it was: the test has set its stamp and header before.
  }
  work.params = params;
  work.sizing.tiles = tiles == 0 ? int64_t{1} << 40 : tiles;
  work.sizing.channels = context_.params[static_cast<size_t>(params)].transfer.accumulators;
  work.whole = tiles == 0;
  const ItemGeometry geometry(work.header.shape,
                              context_.params[static_cast<size_t>(params)].tiling, work.sizing);
  item.output_shape = geometry.grid().output_shape;
  item.infer_units = geometry.units();
  if (item.infer_units == 1) work.whole = true;
  item.staged = staged;
  if (staged) work.stage_file = work.item_key + ".stage";
  item.first_unit = next_unit_;
  next_unit_ += item.infer_units + 2;
  return item;
}

Lease WorkerTest::LeaseOf(const TestItem& item, UnitKind kind, int64_t block) {
  Lease lease;
  lease.lease = next_lease_++;
  lease.attempt = 1;
  lease.work = item.base;
  lease.work.kind = kind;
  lease.work.block = block;
  lease.unit = kind == UnitKind::kStage      ? item.first_unit
               : kind == UnitKind::kAssemble ? item.assemble_unit()
                                             : item.unit_of_block(block);
  if (kind == UnitKind::kInfer && !lease.work.whole) {
    lease.work.brick_key = HashText(item.base.item_key + "/" + std::to_string(block));
  }
  return lease;
}

void WorkerTest::StartRunner(FakeEngine::Options engine, RunnerOptions options) {
  runner_.reset();
  context_.batch = engine.batch;
  options.context = std::make_shared<const WorkerContext>(context_);
  if (options.epoch == 0) options.epoch = 7;
  auto fake = std::make_unique<FakeEngine>(std::move(engine));
  engine_ = fake.get();
  runner_ = std::make_unique<UnitRunner>(
      std::move(options), std::move(fake), profile_, [this](const Lease& lease, const Outcome& outcome) {
        {
          const std::lock_guard lock(mutex_);
          EXPECT_FALSE(outcomes_.contains(lease.lease)) << "two outcomes for one lease";
          outcomes_.emplace(lease.lease, outcome);
        }
        changed_.notify_all();
      });
}

Outcome WorkerTest::Await(const Lease& lease) {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(lock, std::chrono::seconds(20),
                                      [&] { return outcomes_.contains(lease.lease); });
  if (!came) throw Error(Fault::kInternal, "no outcome for lease " + std::to_string(lease.lease));
  return outcomes_.at(lease.lease);
}

bool WorkerTest::Reported(const Lease& lease) {
  const std::lock_guard lock(mutex_);
  return outcomes_.contains(lease.lease);
}

std::vector<Outcome> WorkerTest::RunInfer(const TestItem& item) {
  std::vector<Lease> leases;
  for (int64_t block = 0; block < item.infer_units; ++block) {
    leases.push_back(LeaseOf(item, UnitKind::kInfer, block));
    Submit(leases.back());
  }
  std::vector<Outcome> outcomes;
  for (const Lease& lease : leases) outcomes.push_back(Await(lease));
  return outcomes;
}

Lease WorkerTest::AssembleLease(const TestItem& item, const std::vector<Outcome>& infer) {
  Lease lease = LeaseOf(item, UnitKind::kAssemble);
  for (size_t block = 0; block < infer.size(); ++block) {
    lease.work.bricks.push_back({static_cast<int64_t>(block), std::get<Done>(infer[block]).file,
                                 HashText(item.base.item_key + "/" + std::to_string(block))});
  }
  return lease;
}

Outcome WorkerTest::RunItem(const TestItem& item) {
  if (item.staged) {
    const Outcome staged = Run(LeaseOf(item, UnitKind::kStage));
    if (!std::holds_alternative<Done>(staged)) return staged;
  }
  const std::vector<Outcome> infer = RunInfer(item);
  for (const Outcome& outcome : infer) {
    if (!std::holds_alternative<Done>(outcome)) return outcome;
  }
  if (item.base.whole) return infer.front();
  return Run(AssembleLease(item, infer));
}

std::vector<std::string> WorkerTest::Names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tilery
