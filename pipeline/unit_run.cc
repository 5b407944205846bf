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
  order_.emplace(*work_.geometry, work_.block, *work_.transfer);
  runs_ = order_->runs();
}

Box UnitRun::InputBox(int64_t run) const {
  return work_.geometry->grid().input_box(order_->At(run).tile);
}

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

void UnitRun::Accept(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
                     int64_t slot, Profile* profile) {
  std::unique_lock lock(mutex_);
  if (error_) return;
  parked_.emplace(run, Parked{std::move(output), slot, count});
  parked_count_ += count;
  if (blending_) return;  // that lane goes on until nothing is left whose turn it is
  blending_ = true;
  try {
    while (!error_ && !parked_.empty() && parked_.begin()->first == next_) {
      Parked from = std::move(parked_.begin()->second);
      parked_.erase(parked_.begin());
      parked_count_ -= from.count;
      lock.unlock();
      {
        std::optional<Profile::Scope> scope;
        if (profile != nullptr) scope.emplace(*profile, Stage::kBlend, work_.unit);
        memory_->Blend(next_, from.count, std::move(from.output), from.slot);
      }
      lock.lock();
      next_ += from.count;
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

void UnitRun::RunWithoutModel(Profile* profile) {
  try {
    {
      std::optional<Profile::Scope> scope;
      if (profile != nullptr) scope.emplace(*profile, Stage::kBlend, work_.unit);
      memory_->BlendWithoutModel();
    }
    Finish(profile);
  } catch (...) {
    Fail(std::current_exception());
  }
}

void UnitRun::Finish(Profile* profile) {
  std::shared_ptr<Profile::Scope> scope;
  if (profile != nullptr) {
    scope = std::make_shared<Profile::Scope>(*profile, Stage::kD2h, work_.unit);
  }
  memory_->Finalize([self = shared_from_this(), scope](InferResult result) mutable {
    if (auto* out = std::get_if<InferOutput>(&result)) {
      auto bytes = static_cast<int64_t>(out->interior_samples.size());
      for (const SeamPartial& seam : out->seams)
        bytes += static_cast<int64_t>(seam.count * sizeof(float));
      if (scope) scope->AddBytes(bytes);
      out->tiles = self->runs();
      out->nonfinite_in = self->memory_->nonfinite_in();
      const std::lock_guard lock(self->mutex_);
      out->repeated = self->repeated_;
      out->careful = self->careful_;
    }
    scope.reset();
    self->End(std::move(result));
  });
}

void UnitRun::AddCareful(int64_t runs) {
  const std::lock_guard lock(mutex_);
  careful_ += runs;
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
  // The input's memory may go as soon as `done` was called.
  if (memory_) memory_->StopReading();
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
