// Runs the units that a worker holds: reads ahead, keeps the engine fed, writes behind.
//
//   Submit -> waiting -> [reader pool] -> engine -> [writer pool] -> finished       infer
//   Submit -> waiting -> [stager pool] -> finished                                  stage
//   Submit -> waiting -> [assembler pool] -> finished                               assemble
//   Submit -> waiting -> [coder pool] -> finished                                   files of grids
//
// How much is begun at a time is bounded by tickets: infer units are begun while fewer than
// kUnitsAhead are read or in the engine, fewer than kUnitsBehind are being written, and fewer than
// kUnitsInFlight (without a GPU: kUnitsInFlightOnCpu) are on their way at all; of small units so
// many more that there are kBatchesAhead for every lane. So memory is that of a few large units, or
// of a few batches of small ones, whether the model or the disk is the slower one, and writing
// holds the engine up only where it is. Stage and assemble units run beside them, on threads
// of their own: decoding is serial in most formats, so the more cores, the more files at a time;
// what assembles shares out its work among the encoders.
//
// The engine is told that more tiles are coming soon while inputs are being read or leases are on
// their way, and never otherwise: a batch waits for nothing that waits for the batch. While units
// wait for tickets, it is told that more come in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pipeline/codec/codec_devices.h"
#include "pipeline/engine.h"
#include "worker/unit_env.h"

namespace tilery {

struct RunnerOptions {
  std::shared_ptr<const WorkerContext> context;
  int64_t epoch = 0;
  int readers = 2, writers = 2;          // threads, for infer units
  int stagers = 1, assemblers = 1;       // threads, each with a unit of its own
  int encode_threads = 1;                // shared by all outputs
  CodecDevices* codec = nullptr;         // for files of grids; outlives the runner
  std::function<bool()> lease_is_young;  // thread-safe; empty: always
  std::function<void()> abandoned;  // thread-safe; a unit that was begun is held no more, without
                                    // an outcome
};

// Shares out a worker's cores: how many threads do what, and what is encoded in parallel.
RunnerOptions RunnerOptionsFor(int threads);

// Thread-safe.
class UnitRunner {
 public:
  // One is read, one waits for the device, one is there, of one the result is on its way back.
  static constexpr int64_t kUnitsAhead = 4;
  static constexpr int64_t kUnitsBehind = 3;
  static constexpr int64_t kBatchesAhead = 3;  // of every lane; as many may be behind
  static constexpr int64_t kUnitsInFlight = kUnitsAhead + kUnitsBehind;
  // There nothing is on its way to a device or back: one is read, one waits, one is computed, one
  // written. With more, a disk that is slow for a while would fill memory with results.
  static constexpr int64_t kUnitsInFlightOnCpu = 4;

  // `finished` is called once for every unit that was submitted, on threads of the runner, unless
  // it was dropped or the runner was stopped first. `engine`: null if all units are files of grids.
  UnitRunner(RunnerOptions options, std::unique_ptr<Engine> engine, Profile& profile,
             std::function<void(const Lease&, const Outcome&)> finished);
  ~UnitRunner();  // Stop()

  void Submit(Lease lease);                       // never blocks
  void Drop(const std::vector<int64_t>& leases);  // abandons them without an outcome
  void DropEarly();                               // all that were submitted with bricks missing
  // Some of them, of the assemble unit with this lease; of no use for any other.
  void AddBricks(int64_t lease, std::vector<Brick> bricks);
  void ExpectMore(bool more);  // leases are on their way

  int64_t most_units() const;  // on their way at a time, of large infer units

  // What is held and not finished.
  struct Held {
    int64_t tiles = 0;  // model runs
    int64_t infer_units = 0, stage_units = 0, assemble_units = 0;
    int64_t largest = 0;  // model runs of the largest unit seen so far
    bool empty() const { return infer_units + stage_units + assemble_units == 0; }
  };
  Held held() const;
  int64_t progress() const;  // finished batches, and bands of stage and assemble units
  // Of buffers on the host and of the device's memory, after the warm-up.
  int64_t steady_allocations() const;
  DeviceUse device_use() const;

  // Begins nothing more; abandons what is not begun, and what waits for the bricks of other units.
  void Drain();
  // Abandons everything, ends engine and threads; no `finished` is called after it has returned.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
