// Counters of a worker's stages. Thread-safe; cheap enough to be always on.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "pipeline/model_time.h"

namespace tilery {

enum class Stage : uint8_t { kRead, kDecode, kH2d, kCompute, kBlend, kD2h, kEncode, kWrite };
inline constexpr int kStages = 8;
const char* StageName(
    Stage stage);  // "read", "decode", "h2d", "compute", "blend", "d2h", "encode", "write"

struct StageTotals {
  double s = 0;              // summed over threads
  double under_model_s = 0;  // of it, while the model ran
  int64_t calls = 0;
  int64_t bytes = 0;
};

struct TraceEvent {  // microseconds since the profile began
  const char* name;
  int64_t begin_us, duration_us;
  uint32_t thread;
  int64_t unit;  // -1: none
};

class Profile {
 public:
  Profile();
  // Times one piece of work. Keep it on the stack of the thread that works.
  class Scope {
   public:
    Scope(Profile& profile, Stage stage, int64_t unit = -1, int64_t bytes = 0);
    ~Scope();
    void AddBytes(int64_t bytes) { bytes_ += bytes; }
    Scope(const Scope&) = delete;

   private:
    Profile& profile_;
    Stage stage_;
    int64_t unit_, bytes_;
    std::chrono::steady_clock::time_point begin_;
  };
  // Counts time as busy, of no stage: while a device works on a batch that it was asked for. Model
  // runs that are added later began no earlier than this did.
  class Busy {
   public:
    explicit Busy(Profile& profile);
    ~Busy();
    Busy(const Busy&) = delete;

   private:
    Profile& profile_;
    const std::chrono::steady_clock::time_point begin_;
  };
  // A piece of work that a device has timed itself. `row`: of the trace, beside the threads' rows,
  // which count from 1.
  enum Row : uint32_t { kModelRow = 1000, kCopyInRow, kFinishRow, kCopyOutRow };
  void Add(Stage stage, int64_t unit, int64_t bytes, std::chrono::steady_clock::time_point begin,
           std::chrono::steady_clock::time_point end, uint32_t row);
  std::array<StageTotals, kStages> totals() const;
  // Where the infer units are from now on.
  void Units(const UnitsAt& units);
  ModelTime::Totals model_time() const;  // of stages as their numbers
  double busy_s() const;                 // time with at least one scope open
  double alive_s() const;
  // At most the newest 50,000 since the last call. Pieces of one stage and unit that follow each
  // other on a thread within 0.2 ms are one event: bricks and blocks are small.
  std::vector<TraceEvent> TakeTrace();

 private:
  friend class Scope;
  void Enter();
  void Leave();
  void AddToTrace(Stage stage, const TraceEvent& event);
  const std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;  // guards all below
  std::array<StageTotals, kStages> totals_{};
  int open_ = 0;
  std::chrono::steady_clock::time_point open_since_{};
  double busy_s_ = 0;
  std::vector<TraceEvent> trace_;
  size_t trace_next_ = 0;
  std::unordered_map<uint32_t, size_t> last_of_row_;  // indices of trace_
  mutable ModelTime model_time_;
};

// Called by every Scope of this process as it begins, with its stage's name, and as it ends, on the
// same thread: marks for a profiler of the device's vendor. Set at most once, before the first
// Scope.
struct ScopeMarks {
  void (*begin)(const char* stage) = nullptr;
  void (*end)() = nullptr;
};
void SetScopeMarks(ScopeMarks marks);

// Private memory of this process in bytes: anonymous and pinned, without file pages.
int64_t PrivateMemory();

}  // namespace tilery
