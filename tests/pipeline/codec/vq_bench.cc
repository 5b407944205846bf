// Measures the method vq on a GPU, from values in memory to codes in memory.
//
//   vq_bench FILE... [THREADS]
//
// Leaves of OpenVDB files, all components, again and again. Side by side, in leaves per second:
//   forward only    the nets on leaves that lie on the GPU, in batches of several sizes
//   whole way       THREADS quantise values, copy, encode and fetch codes
//   serial loop     one thread, 64 leaves at a time, pageable copies
// and the way back. Needs a GPU.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "pipeline/codec/grid_fit.h"
#include "pipeline/codec/grid_regions.h"
#include "pipeline/cuda/codec_memory.h"
#include "pipeline/cuda/vq_gpu.h"
#include "pipeline/cuda/vq_kernels.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

using Leaf = BlockNumbers::Leaf;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Source {
  RegionCoding coding;
  std::vector<LeafMask> masks;
  std::vector<std::byte> values;
};

std::vector<Source> SourcesOf(const VdbFile& file) {
  std::vector<Source> all;
  GridBounds bounds = ParseGridBounds("none");
  bounds.method = GridMethod::kVq;
  for (const VdbGrid& grid : file.grids()) {
    if (!VdbNumbersOf(grid.type) || !grid.twin_of.empty()) continue;
    const GridSurvey survey = SurveyOf(file, grid, {});
    if (!(survey.most > survey.least)) continue;
    Source source;
    source.coding = FitGrid(file, grid, survey, bounds, {});
    if (!source.coding.vq) continue;
    RegionReader reader(file, grid);
    for (Region region; reader.Next(&region);) {
      for (size_t leaf = 0; leaf < region.masks.size(); ++leaf) {
        if (region.masks[leaf] == LeafMask{}) continue;
        const auto values = region.LeafValues(leaf, source.coding.numbers);
        source.masks.push_back(region.masks[leaf]);
        source.values.insert(source.values.end(), values.begin(), values.end());
      }
    }
    all.push_back(std::move(source));
  }
  return all;
}

// Some leaves of a source as whole numbers, all components.
struct Batch {
  BlockNumbers numbers;
  std::vector<const LeafMask*> masks;
  std::vector<const Leaf*> from;
  std::vector<Leaf> restored;
  std::vector<Leaf*> to;

  Batch(const Source& source, size_t first, size_t count)
      : numbers(static_cast<size_t>(source.coding.numbers.components)) {
    const size_t leaf_bytes = kVdbLeafVoxels * source.coding.numbers.bytes();
    for (size_t i = 0; i < count; ++i) {
      const size_t leaf = (first + i) % source.masks.size();
      AddLeaf(0, source.masks[leaf],
              std::span(source.values).subspan(leaf * leaf_bytes, leaf_bytes), source.coding,
              &numbers, nullptr);
    }
    for (const auto& component : numbers.values) {
      for (size_t leaf = 0; leaf < component.size(); ++leaf) {
        masks.push_back(&numbers.masks[leaf]);
        from.push_back(&component[leaf]);
      }
    }
    restored.resize(from.size());
    for (Leaf& leaf : restored) to.push_back(&leaf);
  }
};

// On the GPU, pageable from and to the host.
class Resident {
 public:
  explicit Resident(const Batch& batch) {
    const auto count = static_cast<int64_t>(batch.from.size());
    cuda::Layout layout;
    const int64_t words = layout.Add<cuda::VqWords>(1), masks = layout.Add<LeafMask>(count),
                  numbers = layout.Add<Leaf>(count), restored = layout.Add<Leaf>(count),
                  offsets = layout.Add<int32_t>(count), scales = layout.Add(count),
                  stages = layout.Add(count), codes = layout.Add(count * kVqStages * kVqCells);
    std::byte* const data = memory_.Reserve(layout.size());
    const auto packed = std::make_unique<cuda::VqWords>();
    cuda::FillVqWords(VqModel(), packed.get());
    cuda::CheckCall(cudaMemcpy(data + words, packed.get(), sizeof *packed, cudaMemcpyHostToDevice),
                    "copy");
    task_.words = reinterpret_cast<const cuda::VqWords*>(data + words);
    task_.leaves = static_cast<int32_t>(count);
    task_.masks = reinterpret_cast<const uint64_t*>(data + masks);
    task_.numbers = reinterpret_cast<int32_t*>(data + numbers);
    task_.restored = reinterpret_cast<int32_t*>(data + restored);
    task_.offsets = reinterpret_cast<int32_t*>(data + offsets);
    task_.scales = reinterpret_cast<uint8_t*>(data + scales);
    task_.stages = reinterpret_cast<uint8_t*>(data + stages);
    task_.codes = reinterpret_cast<uint8_t*>(data + codes);
    host_codes_.resize(static_cast<size_t>(count) * kVqStages * kVqCells);
    Send(batch);
  }
  void Send(const Batch& batch) {
    std::vector<LeafMask> masks;
    std::vector<Leaf> numbers;
    for (size_t i = 0; i < batch.from.size(); ++i) {
      masks.push_back(*batch.masks[i]);
      numbers.push_back(*batch.from[i]);
    }
    Copy(const_cast<uint64_t*>(task_.masks), masks.data(), masks.size() * sizeof masks[0],
         cudaMemcpyHostToDevice);
    Copy(task_.numbers, numbers.data(), numbers.size() * sizeof numbers[0], cudaMemcpyHostToDevice);
  }
  void Run(const VqGoal& goal, bool decoding) {
    task_.goal = goal.square;
    task_.most_stages = goal.most_stages;
    decoding ? cuda::DecodeVqLeaves(task_, nullptr) : cuda::EncodeVqLeaves(task_, nullptr);
  }
  void Wait() { cuda::CheckCall(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  void Fetch() {
    Copy(host_codes_.data(), task_.codes, host_codes_.size(), cudaMemcpyDeviceToHost);
    std::vector<Leaf> restored(static_cast<size_t>(task_.leaves));
    Copy(restored.data(), task_.restored, restored.size() * sizeof restored[0],
         cudaMemcpyDeviceToHost);
  }

 private:
  static void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cuda::CheckCall(cudaMemcpy(to, from, bytes, kind), "cudaMemcpy");
  }
  cuda::GrowingMemory memory_{false};
  cuda::VqTask task_{};
  std::vector<uint8_t> host_codes_;
};

int Run(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  int threads = 16;
  if (!args.empty() && args.back().find_first_not_of("0123456789") == std::string::npos) {
    threads = std::stoi(args.back());
    args.pop_back();
  }
  if (args.empty()) {
    std::cerr << "vq_bench FILE... [THREADS]\n";
    return 1;
  }
  std::vector<Source> sources;
  for (const std::string& arg : args) {
    for (Source& source : SourcesOf(VdbFile(arg))) sources.push_back(std::move(source));
  }
  cuda::VqGpu gpu(0);
  for (const bool decoding : {false, true}) {
    double best = 0;
    for (const size_t count : {64u, 512u, 4096u, 16384u, 65536u}) {
      double leaves = 0, seconds = 0;
      for (const Source& source : sources) {
        const Batch batch(source, 0, count / static_cast<size_t>(source.coding.numbers.components));
        Resident resident(batch);
        const VqGoal& goal = source.coding.vq->goal;
        resident.Run(goal, false);
        resident.Wait();
        const double start = Seconds();
        const int rounds = 1 + static_cast<int>(200000 / count);
        for (int round = 0; round < rounds; ++round) resident.Run(goal, decoding);
        resident.Wait();
        seconds += Seconds() - start;
        leaves += rounds * static_cast<double>(batch.from.size());
      }
      std::printf("%s, forward only, batch %zu: %.3f M leaves/s\n", decoding ? "decode" : "encode",
                  count, leaves / seconds / 1e6);
      best = std::max(best, leaves / seconds);
    }
    double whole = 0;
    for (const size_t count : {1024u, 4096u, 12288u}) {
      std::vector<Batch> batches;
      std::vector<std::vector<VqLeaf>> coded;
      for (const Source& source : sources) {
        batches.emplace_back(source, 0,
                             count / static_cast<size_t>(source.coding.numbers.components));
        coded.push_back(gpu.Encode(batches.back().masks, batches.back().from,
                                   source.coding.vq->goal, batches.back().to));
      }
      for (const bool measured : {false, true}) {
        std::atomic<size_t> next{0};
        std::atomic<int64_t> leaves{0};
        const size_t jobs =
            sources.size() * (4 + (measured ? 1500000 : 100000) / count / sources.size());
        const double start = Seconds();
        std::vector<std::thread> pool;
        for (int t = 0; t < threads; ++t) {
          pool.emplace_back([&] {
            std::vector<Leaf> back;
            for (size_t job = next++; job < jobs; job = next++) {
              const size_t s = job % sources.size();
              const Source& source = sources[s];
              if (decoding) {
                back.resize(batches[s].from.size());
                std::vector<Leaf*> to;
                for (Leaf& leaf : back) to.push_back(&leaf);
                gpu.Decode(batches[s].masks, coded[s], to);
              } else {
                Batch batch(source, job * 97,
                            count / static_cast<size_t>(source.coding.numbers.components));
                gpu.Encode(batch.masks, batch.from, source.coding.vq->goal, batch.to);
              }
              leaves += static_cast<int64_t>(batches[s].from.size());
            }
          });
        }
        for (std::thread& thread : pool) thread.join();
        const double rate = static_cast<double>(leaves) / (Seconds() - start);
        if (measured) {
          std::printf(
              "%s, whole way, %d threads, %zu leaves a call: %.3f M leaves/s, %.0f %% of forward "
              "only\n",
              decoding ? "decode" : "encode", threads, count, rate / 1e6, 100 * rate / best);
          whole = std::max(whole, rate);
        }
      }
    }
    if (decoding) continue;
    double leaves = 0;
    std::map<const Source*, std::unique_ptr<Resident>> residents;
    const double start = Seconds();
    for (int round = 0; round < 100; ++round) {
      for (const Source& source : sources) {
        const Batch batch(source, static_cast<size_t>(round) * 64,
                          64 / static_cast<size_t>(source.coding.numbers.components));
        std::unique_ptr<Resident>& resident = residents[&source];
        if (!resident) resident = std::make_unique<Resident>(batch);
        resident->Send(batch);
        resident->Run(source.coding.vq->goal, false);
        resident->Fetch();
        leaves += static_cast<double>(batch.from.size());
      }
    }
    const double rate = leaves / (Seconds() - start);
    std::printf(
        "encode, serial loop, 64 leaves at a time: %.3f M leaves/s; whole way is %.1f times that\n",
        rate / 1e6, whole / rate);
  }
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
