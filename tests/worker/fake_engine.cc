#include "tests/worker/fake_engine.h"

#include <cstring>

#include "io/error.h"

namespace tilery {
namespace {

double Load(const std::byte* at, DType type) {
  switch (type) {
    case DType::kU8:
      return static_cast<double>(*reinterpret_cast<const uint8_t*>(at));
    case DType::kU16: {
      uint16_t value;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    case DType::kF32: {
      float value;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    default:
      throw Error(Fault::kInternal, "the fake engine knows u8, u16 and f32");
  }
}

}  // namespace

InferOutput RunNearest(const InferWork& work) {
  const ItemGeometry& geometry = *work.geometry;
  const TileGrid& grid = geometry.grid();
  const Transfer& transfer = *work.transfer;
  const int64_t channels = transfer.accumulators;
  const Box cover = geometry.unit_cover(work.block);
  const Index extent = cover.shape();
  std::vector<float> sums(static_cast<size_t>(cover.voxels() * channels), 0.0f);

  const Box tiles = geometry.unit_tiles(work.block);
  for (int64_t tz = tiles.begin[0]; tz < tiles.end[0]; ++tz) {
    for (int64_t ty = tiles.begin[1]; ty < tiles.end[1]; ++ty) {
      for (int64_t tx = tiles.begin[2]; tx < tiles.end[2]; ++tx) {
        const TileWindow& wz = geometry.windows(0)[tz];
        const TileWindow& wy = geometry.windows(1)[ty];
        const TileWindow& wx = geometry.windows(2)[tx];
        for (int64_t z = wz.begin; z < wz.end(); ++z) {
          for (int64_t y = wy.begin; y < wy.end(); ++y) {
            for (int64_t x = wx.begin; x < wx.end(); ++x) {
              Index source;
              const Index out{z, y, x};
              for (int axis = 0; axis < 3; ++axis) {
                const Rational& scale = grid.tiling.scale[axis];
                source[axis] = PadSource(out[axis] * scale.den / scale.num, grid.shape[axis],
                                         grid.tiling.pad) -
                               work.input_box.begin[axis];
              }
              const float weight =
                  (wz.weights[z - wz.begin] * wy.weights[y - wy.begin]) * wx.weights[x - wx.begin];
              float* const into = &sums[static_cast<size_t>(
                  (((z - cover.begin[0]) * extent[1] + y - cover.begin[1]) * extent[2] + x -
                   cover.begin[2]) *
                  channels)];
              for (int64_t c = 0; c < channels; ++c) {
                const double raw =
                    Load(work.input.at(c, source[0], source[1], source[2]), transfer.in_dtype);
                const auto value = static_cast<float>((raw - transfer.raw_lo) /
                                                          (transfer.raw_hi - transfer.raw_lo) *
                                                          (transfer.range_hi - transfer.range_lo) +
                                                      transfer.range_lo);
                into[c] += weight * value;
              }
            }
          }
        }
      }
    }
  }

  const auto cut = [&](const Box& box) {
    std::vector<float> part(static_cast<size_t>(box.voxels() * channels));
    if (box.empty()) return part;
    const Index to_cover{-cover.begin[0], -cover.begin[1], -cover.begin[2]};
    const ConstView all = DenseView(reinterpret_cast<const std::byte*>(sums.data()), DType::kF32,
                                    channels, extent, Layout::kInterleaved);
    CopyView(all.Crop(Shift(box, to_cover)),
             DenseView(reinterpret_cast<std::byte*>(part.data()), DType::kF32, channels,
                       box.shape(), Layout::kInterleaved));
    return part;
  };
  InferOutput output;
  output.tiles = geometry.tiles_of(work.block);
  output.interior = geometry.interior(work.block);
  if (!output.interior.empty()) {
    const std::vector<float> part = cut(output.interior);
    output.interior_samples =
        SharedBytes(static_cast<size_t>(output.interior.voxels() * transfer.out_channels *
                                        static_cast<int64_t>(DTypeSize(transfer.out_dtype))));
    FinalizeSums(part.data(), output.interior.shape(), transfer,
                 DenseView(output.interior_samples.data(), transfer.out_dtype,
                           transfer.out_channels, output.interior.shape(), Layout::kInterleaved));
  }
  for (const SeamCell& cell : geometry.seams(work.block)) {
    const std::vector<float> part = cut(cell.box);
    std::copy(part.begin(), part.end(), output.seams.emplace_back(cell.box, channels).sums.get());
  }
  return output;
}

FakeEngine::FakeEngine(Options options)
    : options_(std::move(options)), thread_([this] { Loop(); }) {}

FakeEngine::~FakeEngine() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Pending& left : pending_) {
    left.done(std::make_exception_ptr(Error(Fault::kTransient, "the engine was ended")));
  }
}

void FakeEngine::Submit(InferWork work, std::function<void(InferResult)> done) {
  {
    const std::lock_guard lock(mutex_);
    const int64_t tiles = work.geometry->tiles_of(work.block);
    pending_.push_back({std::move(work), std::move(done), tiles});
  }
  changed_.notify_all();
}

void FakeEngine::MoreComing(More more) {
  {
    const std::lock_guard lock(mutex_);
    more_ = more;
  }
  changed_.notify_all();
}

More FakeEngine::more() const {
  const std::lock_guard lock(mutex_);
  return more_;
}

int64_t FakeEngine::queued_tiles() const {
  const std::lock_guard lock(mutex_);
  int64_t tiles = 0;
  for (const Pending& pending : pending_) tiles += pending.left;
  return tiles;
}

void FakeEngine::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto queued = [this] {
      int64_t tiles = 0;
      for (const Pending& pending : pending_) tiles += pending.left;
      return tiles;
    };
    changed_.wait(lock, [&] {
      const int64_t tiles = queued();
      return ending_ || tiles >= options_.batch || (tiles > 0 && more_ != More::kSoon);
    });
    if (ending_) return;
    int64_t room = options_.batch;
    for (Pending& pending : pending_) {
      const int64_t take = std::min(room, pending.left);
      pending.left -= take;
      room -= take;
    }
    ++batches_;
    if (room > 0) ++partial_batches_;
    while (!pending_.empty() && pending_.front().left == 0) {
      Pending finished = std::move(pending_.front());
      pending_.pop_front();
      lock.unlock();
      InferResult result;
      try {
        if (options_.before) options_.before(finished.work);
        result = RunNearest(finished.work);
      } catch (...) {
        result = std::current_exception();
      }
      finished.work = {};
      finished.done(std::move(result));
      lock.lock();
    }
  }
}

}  // namespace tilery
