#include "pipeline/unit_run.h"

#include <string>
#include <utility>

#include "io/error.h"

namespace tilery {

UnitRun::UnitRun(InferWork work, std::function<void(InferResult)> done,
                 std::atomic<int64_t>& parked)
    : work_(std::move(work)), done_(std::move(done)), parked_count_(parked) {
  // Work that will be refused may name any block.
  if (work_.block < 0 || work_.block >= work_.geometry->units()) return;
  tiles_box_ = work_.geometry->unit_tiles(work_.block);
  tiles_ = tiles_box_.voxels();
  for (size_t p = 0; p < work_.transfer->passes.size(); ++p) {
    if (work_.transfer->passes[p].op == Pass::Op::kModel) model_passes_.push_back(p);
  }
}

UnitRun::Position UnitRun::At(int64_t run) const {
  const auto passes = static_cast<int64_t>(model_passes_.size());
  const int64_t flat = run / passes;
  const int64_t nx = tiles_box_.extent(2), ny = tiles_box_.extent(1);
  return {{tiles_box_.begin[0] + flat / (nx * ny), tiles_box_.begin[1] + flat / nx % ny,
           tiles_box_.begin[2] + flat % nx},
          model_passes_[run % passes]};
}

Box UnitRun::InputBox(int64_t run) const { return work_.geometry->grid().input_box(At(run).tile); }

void UnitRun::Enter() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

bool UnitRun::Open(Device& device) {
  const std::lock_guard opening(opening_);
  // What was refused is never read: nothing says that its samples are there.
  if (!opened_ && !failed()) {
    opened_ = true;
    try {
      memory_ = device.Open(work_);
    } catch (...) {
      Fail(std::current_exception());
    }
  }
  const std::lock_guard lock(mutex_);
  return error_ == nullptr;
}

void UnitRun::Accept(int64_t run, std::shared_ptr<const BatchOutput> output, int64_t slot,
                     Profile& profile) {
  std::unique_lock lock(mutex_);
  if (error_) return;
  parked_.emplace(run, Parked{std::move(output), slot});
  ++parked_count_;
  if (blending_) return;  // that lane goes on until nothing is left whose turn it is
  blending_ = true;
  try {
    while (!error_ && !parked_.empty() && parked_.begin()->first == next_) {
      const Parked from = std::move(parked_.begin()->second);
      parked_.erase(parked_.begin());
      --parked_count_;
      lock.unlock();
      {
        const Profile::Scope scope(profile, Stage::kBlend, work_.unit);
        BlendRun(next_, from);
      }
      lock.lock();
      ++next_;
    }
    blending_ = false;
    const bool complete = !error_ && next_ == runs();
    lock.unlock();
    if (complete) Finish(profile);
  } catch (...) {
    if (lock.owns_lock()) lock.unlock();
    Fail(std::current_exception());
  }
}

void UnitRun::BlendRun(int64_t run, const Parked& from) {
  const auto passes = static_cast<int64_t>(model_passes_.size());
  const Position at = At(run);
  const int64_t k = run % passes;
  const size_t first = k == 0 ? 0 : model_passes_[k - 1] + 1;
  for (size_t p = first; p < at.pass; ++p) memory_->Blend(at.tile, p, nullptr, 0);
  memory_->Blend(at.tile, at.pass, from.output.get(), from.slot);
  if (k + 1 < passes) return;
  for (size_t p = at.pass + 1; p < work_.transfer->passes.size(); ++p) {
    memory_->Blend(at.tile, p, nullptr, 0);
  }
}

void UnitRun::RunWithoutModel(Profile& profile) {
  try {
    {
      const Profile::Scope scope(profile, Stage::kBlend, work_.unit);
      for (int64_t z = tiles_box_.begin[0]; z < tiles_box_.end[0]; ++z) {
        for (int64_t y = tiles_box_.begin[1]; y < tiles_box_.end[1]; ++y) {
          for (int64_t x = tiles_box_.begin[2]; x < tiles_box_.end[2]; ++x) {
            for (size_t p = 0; p < work_.transfer->passes.size(); ++p) {
              memory_->Blend({z, y, x}, p, nullptr, 0);
            }
          }
        }
      }
    }
    Finish(profile);
  } catch (...) {
    Fail(std::current_exception());
  }
}

void UnitRun::Finish(Profile& profile) {
  InferOutput out;
  {
    Profile::Scope scope(profile, Stage::kD2h, work_.unit);
    out = memory_->Finalize();
    auto bytes = static_cast<int64_t>(out.interior_samples.size());
    for (const SeamPartial& seam : out.seams) bytes += seam.sums.size() * sizeof(float);
    scope.AddBytes(bytes);
  }
  out.tiles = runs();
  out.nonfinite_in = memory_->nonfinite_in();
  {
    const std::lock_guard lock(mutex_);
    out.repeated = repeated_;
  }
  End(std::move(out));
}

void UnitRun::AddRepeated(int64_t runs) {
  const std::lock_guard lock(mutex_);
  repeated_ += runs;
}

void UnitRun::Fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ || ended_) return;
  error_ = std::move(error);
  parked_count_ -= static_cast<int64_t>(parked_.size());
  parked_.clear();
}

bool UnitRun::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void UnitRun::Leave() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (--users_ > 0 || !error_) return;
    error = error_;
  }
  // The input's memory may go as soon as `done` was called, and now nobody reads it any more.
  End(error);
}

void UnitRun::End(InferResult result) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  done_(std::move(result));
}

}  // namespace tilery
