#include "pipeline/profile.h"

#include <cstdio>
#include <cstring>

#include "pipeline/profile_switch.h"

namespace tilery {
namespace {

constexpr size_t kTraceEvents = 50'000;
constexpr int64_t kTraceGap_us = 200;

using Clock = std::chrono::steady_clock;

ScopeMarks g_marks;
std::atomic<bool> g_record{true};

Clock::time_point NowIfRecording() { return ProfilesRecord() ? Clock::now() : Clock::time_point{}; }

// Small numbers in the order in which threads first appear: readable in a trace.
uint32_t ThreadNumber() {
  static std::atomic<uint32_t> next{1};
  thread_local const uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

const char* StageName(Stage stage) {
  static constexpr const char* kNames[kStages] = {"read",  "decode", "h2d",    "compute",
                                                  "blend", "d2h",    "encode", "write"};
  return kNames[static_cast<size_t>(stage)];
}

Profile::Profile() : start_(std::chrono::steady_clock::now()), model_time_(start_) {}

Profile::Scope::Scope(Profile& profile, Stage stage, int64_t unit, int64_t bytes)
    : profile_(profile), stage_(stage), unit_(unit), bytes_(bytes), begin_(NowIfRecording()) {
  if (!ProfilesRecord()) return;
  if (g_marks.begin != nullptr) g_marks.begin(StageName(stage));
  profile_.Enter();
  if (stage_ == Stage::kCompute) {
    const std::lock_guard lock(profile_.mutex_);
    profile_.model_time_.Begins(begin_);
  }
}

Profile::Scope::~Scope() {
  if (!ProfilesRecord()) return;
  profile_.Add(stage_, unit_, bytes_, begin_, std::chrono::steady_clock::now(), ThreadNumber());
  if (stage_ == Stage::kCompute) {
    const std::lock_guard lock(profile_.mutex_);
    profile_.model_time_.Ended(begin_);
  }
  profile_.Leave();
  if (g_marks.end != nullptr) g_marks.end();
}

void SetScopeMarks(ScopeMarks marks) { g_marks = marks; }

void RecordProfiles(bool on) { g_record.store(on, std::memory_order_relaxed); }
bool ProfilesRecord() { return g_record.load(std::memory_order_relaxed); }

Profile::Busy::Busy(Profile& profile) : profile_(profile), begin_(NowIfRecording()) {
  if (!ProfilesRecord()) return;
  profile_.Enter();
  const std::lock_guard lock(profile_.mutex_);
  profile_.model_time_.Begins(begin_);
}

Profile::Busy::~Busy() {
  if (!ProfilesRecord()) return;
  {
    const std::lock_guard lock(profile_.mutex_);
    profile_.model_time_.Ended(begin_);
  }
  profile_.Leave();
}

// Busy time is taken from a clock read under the lock: only then are its intervals disjoint. With
// the scopes' own times, one that waited for the lock would count what another counted already.
void Profile::Enter() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0) open_since_ = std::chrono::steady_clock::now();
}

void Profile::Leave() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) busy_s_ += Seconds(std::chrono::steady_clock::now() - open_since_);
}

void Profile::Add(Stage stage, int64_t unit, int64_t bytes,
                  std::chrono::steady_clock::time_point begin,
                  std::chrono::steady_clock::time_point end, uint32_t row) {
  if (!ProfilesRecord()) return;
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  const TraceEvent event{StageName(stage), duration_cast<microseconds>(begin - start_).count(),
                         duration_cast<microseconds>(end - begin).count(), row, unit};
  const std::lock_guard lock(mutex_);
  StageTotals& totals = totals_[static_cast<size_t>(stage)];
  totals.s += Seconds(end - begin);
  totals.calls += 1;
  totals.bytes += bytes;
  if (stage == Stage::kCompute)
    model_time_.Ran(begin, end);
  else
    model_time_.Other(static_cast<size_t>(stage), begin, end);
  AddToTrace(stage, event);
}

// Model runs stay apart, since they are counted by their events, and so does what a device timed.
void Profile::AddToTrace(Stage stage, const TraceEvent& event) {
  if (stage != Stage::kCompute && event.thread < kModelRow) {
    const auto [at, first] = last_of_row_.try_emplace(event.thread, SIZE_MAX);
    if (!first && at->second < trace_.size()) {
      TraceEvent& last = trace_[at->second];  // or what has taken its place in the ring
      const int64_t gap_us = event.begin_us - last.begin_us - last.duration_us;
      if (last.name == event.name && last.thread == event.thread && last.unit == event.unit &&
          gap_us >= 0 && gap_us <= kTraceGap_us) {
        last.duration_us = event.begin_us + event.duration_us - last.begin_us;
        return;
      }
    }
    at->second = trace_.size() < kTraceEvents ? trace_.size() : trace_next_;
  }
  if (trace_.size() < kTraceEvents) {
    trace_.push_back(event);
  } else {
    trace_[trace_next_] = event;  // a ring: the oldest goes
    trace_next_ = (trace_next_ + 1) % kTraceEvents;
  }
}

std::array<StageTotals, kStages> Profile::totals() const {
  const std::lock_guard lock(mutex_);
  auto totals = totals_;
  const auto times = model_time_.totals(std::chrono::steady_clock::now());
  for (size_t i = 0; i < times.under_model_s.size(); ++i)
    totals[i].under_model_s = times.under_model_s[i];
  return totals;
}

void Profile::Units(const UnitsAt& units) {
  if (!ProfilesRecord()) return;
  const std::lock_guard lock(mutex_);
  model_time_.Now(units, std::chrono::steady_clock::now());
}

ModelTime::Totals Profile::model_time() const {
  const std::lock_guard lock(mutex_);
  return model_time_.totals(std::chrono::steady_clock::now());
}

double Profile::busy_s() const {
  const std::lock_guard lock(mutex_);
  return busy_s_ + (open_ > 0 ? Seconds(std::chrono::steady_clock::now() - open_since_) : 0.0);
}

double Profile::alive_s() const { return Seconds(std::chrono::steady_clock::now() - start_); }

std::vector<TraceEvent> Profile::TakeTrace() {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEvent> events;
  events.reserve(trace_.size());
  for (size_t i = 0; i < trace_.size(); ++i) {
    events.push_back(trace_[(trace_next_ + i) % trace_.size()]);
  }
  trace_.clear();
  trace_next_ = 0;
  last_of_row_.clear();
  return events;
}

int64_t PrivateMemory() {
  // RssAnon counts anonymous pages, pinned ones included, and leaves mapped files out.
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "RssAnon: %lld kB", &kib) == 1) break;
  }
  std::fclose(file);
  return static_cast<int64_t>(kib) * 1024;
}

}  // namespace tilery
