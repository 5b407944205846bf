#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/vq_kernels.h"

namespace tilery::cuda {
namespace {

// A block of threads takes two leaves at a time. A half of a warp computes 16 outputs of 8 cells.
constexpr int kLeaves = 2, kThreads = 256, kTile = 8, kTiles = 8;
constexpr int kSide = 6, kPadded = kSide * kSide * kSide;  // cells, with a border of zeros
constexpr int kBordered = 10;                              // voxels, likewise

struct __align__(16) Leaf {
  union {
    int8_t patches[kVqCells][kVqPatch];
    struct {
      int8_t cells[kPadded][kVqCellInputs];
      int8_t second[kVqCells][kVqSecond];
    };
  };
  int8_t hidden[kPadded][kVqHidden];
  int8_t values[kBordered * kBordered * kBordered], active[kBordered * kBordered * kBordered];
  int16_t rest[kVqCells][kVqWidth];  // of the vectors, what codes have not told yet
  int16_t sum[kVqCells][kVqWidth];   // of the codes' vectors
  uint64_t mask[8];
  uint8_t corners[kVqCells];  // VqActive
  int32_t count, mean, offset;
  unsigned long long total;  // sums over voxels
  int64_t spread, most;
  int scale, stages;
  bool more;
};

__device__ int PaddedAt(int cell) {
  return ((cell / 16 + 1) * kSide + cell / 4 % 4 + 1) * kSide + cell % 4 + 1;
}

// Where the inputs of cells lie: kRuns runs of kRun bytes, read kVector bytes at a time.
template <int kInputs, int kVectorBytes>
struct Around {
  static constexpr int kRuns = 9, kRun = 3 * kInputs, kVector = kVectorBytes;
  __device__ static int Offset(int run) {
    return ((run / 3 - 1) * kSide * kSide + (run % 3 - 1) * kSide - 1) * kInputs;
  }
  __device__ static int Cell(int cell) { return PaddedAt(cell) * kInputs; }
};
template <int kInputs>
struct Alone {
  static constexpr int kRuns = 1, kRun = kInputs, kVector = 16;
  __device__ static int Offset(int) { return 0; }
  __device__ static int Cell(int cell) { return cell * kInputs; }
};

template <int kVector>
struct Words;
template <>
struct Words<16> {
  using Type = int4;
};
template <>
struct Words<8> {
  using Type = int2;
};

// Calls done(leaf, cell, output, sum) for all outputs of all cells of the leaves that `use` names.
template <typename Runs, int kOut, typename From, typename Use, typename Done>
__device__ void Layer(const int32_t (&weights)[Runs::kRuns * Runs::kRun / 4][kOut],
                      const int32_t (&bias)[kOut], const From& from, const Use& use,
                      const Done& done) {
  constexpr int kWide = kOut < 16 ? kOut : 16, kGroups = kOut / kWide;
  constexpr int kWords = Runs::kVector / 4;
  const int half = static_cast<int>(threadIdx.x) / kWide,
            lane = static_cast<int>(threadIdx.x) % kWide;
  for (int item = half; item < kLeaves * kTiles * kGroups; item += kThreads / kWide) {
    const int leaf = item / (kTiles * kGroups), tile = item / kGroups % kTiles;
    const int out = item % kGroups * kWide + lane;
    if (!use(leaf)) continue;
    const int8_t* const base = from(leaf);
    int32_t sums[kTile];
    int at[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      sums[i] = bias[out];
      at[i] = Runs::Cell(tile * kTile + i);
    }
    const int32_t* weight = &weights[0][out];
    for (int run = 0; run < Runs::kRuns; ++run) {
      const int8_t* const in = base + Runs::Offset(run);
#pragma unroll
      for (int byte = 0; byte < Runs::kRun; byte += Runs::kVector) {
        int32_t factors[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w, weight += kOut) factors[w] = __ldg(weight);
#pragma unroll
        for (int i = 0; i < kTile; ++i) {
          union {
            typename Words<Runs::kVector>::Type vector;
            int32_t words[kWords];
          };
          vector = *reinterpret_cast<const decltype(vector)*>(in + at[i] + byte);
#pragma unroll
          for (int w = 0; w < kWords; ++w) sums[i] = __dp4a(factors[w], words[w], sums[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTile; ++i) done(leaf, tile * kTile + i, out, sums[i]);
  }
  __syncthreads();
}

struct Nets {
  const VqTask& task;
  Leaf* const leaves;
  const int first;  // leaf of the task

  __device__ int there() const { return min(kLeaves, task.leaves - first); }
  __device__ static int Thread() { return static_cast<int>(threadIdx.x); }
  // Half of the threads for each leaf.
  __device__ static int Mine() { return Thread() / (kThreads / kLeaves); }
  __device__ static int Rank() { return Thread() % (kThreads / kLeaves); }
  static constexpr int kEach = kThreads / kLeaves;
  __device__ Leaf& mine() const { return leaves[Mine()]; }
  __device__ bool Here() const { return Mine() < there(); }
  __device__ int64_t Index() const { return first + Mine(); }

  __device__ void Begin() const {
    auto* const words = reinterpret_cast<int32_t*>(leaves);
    for (int i = Thread(); i < kLeaves * static_cast<int>(sizeof(Leaf)) / 4; i += kThreads)
      words[i] = 0;
    __syncthreads();
    if (Here() && Rank() < 8) mine().mask[Rank()] = task.masks[Index() * 8 + Rank()];
    __syncthreads();
    if (Here() && Rank() < kVqCells)
      mine().corners[Rank()] = static_cast<uint8_t>(VqActive(mine().mask, Rank()));
    if (Here() && Rank() == 0) {
      int32_t count = 0;
      for (const uint64_t word : mine().mask) count += __popcll(word);
      mine().count = count;
    }
    __syncthreads();
  }
  __device__ bool On(int voxel) const { return (mine().mask[voxel / 64] >> (voxel % 64) & 1) != 0; }
  // Of values of this leaf's active voxels, into `total`.
  template <typename Value>
  __device__ void Sum(const Value& value) const {
    if (Rank() == 0) mine().total = 0;
    __syncthreads();
    int64_t sum = 0;
    for (int voxel = Rank(); Here() && voxel < 512; voxel += kEach) {
      if (On(voxel)) sum += value(voxel);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (Thread() % 32 == 0) atomicAdd(&mine().total, static_cast<unsigned long long>(sum));
    __syncthreads();
  }
  __device__ int64_t total() const { return static_cast<int64_t>(mine().total); }

  __device__ void Place(int32_t offset, int scale) const {
    if (Here() && Rank() == 0) {
      const VqPlace place{offset, static_cast<uint8_t>(scale)};
      mine().scale = scale;
      mine().offset = VqOffset(place);
      mine().spread = VqSpread(scale);
    }
    __syncthreads();
  }

  __device__ void Encode() const {
    const int32_t* const numbers = task.numbers + Index() * 512;
    Sum([&](int voxel) { return int64_t{numbers[voxel]}; });
    if (Here() && Rank() == 0) mine().mean = VqMean(total(), mine().count);
    __syncthreads();
    Sum([&](int voxel) {
      const int64_t off = int64_t{numbers[voxel]} - mine().mean;
      return off < 0 ? -off : off;
    });
    VqPlace place{};
    if (Here()) place = VqPlaceOf(mine().mean, total(), mine().count);
    Place(place.offset, place.scale);
    if (Here() && Rank() == 0) {
      task.offsets[Index()] = place.offset;
      task.scales[Index()] = place.scale;
      mine().most = VqMostSquares(task.goal, mine().count);
    }
    for (int voxel = Rank(); Here() && place.scale != 0 && voxel < 512; voxel += kEach) {
      if (!On(voxel)) continue;
      const int at = ((voxel / 64 + 1) * kBordered + voxel / 8 % 8 + 1) * kBordered + voxel % 8 + 1;
      mine().values[at] = VqInput(numbers[voxel], mine().offset, mine().spread);
      mine().active[at] = kVqOne;
    }
    __syncthreads();
    for (int i = Rank(); i < kVqCells * kVqPatch; i += kEach) {
      const int cell = i / kVqPatch, x = i / 16 % 4, y = i / 4 % 4, z = i % 4;
      const int at =
          ((cell / 16 * 2 + x) * kBordered + cell / 4 % 4 * 2 + y) * kBordered + cell % 4 * 2 + z;
      mine().patches[cell][i % kVqPatch] =
          i % kVqPatch < kVqPatch / 2 ? mine().values[at] : mine().active[at];
    }
    __syncthreads();
    const auto all = [&](int leaf) { return leaves[leaf].scale != 0; };
    Layer<Alone<kVqPatch>>(
        task.words->encoder_first, task.words->encoder_first_bias,
        [&](int leaf) { return &leaves[leaf].patches[0][0]; }, all,
        [&](int leaf, int cell, int out, int32_t sum) {
          leaves[leaf].hidden[PaddedAt(cell)][out] = VqHidden(sum, kVqFirstShift);
        });
    // The patches' memory is the cells' from here on.
    for (int i = Rank(); i < kPadded * kVqCellInputs; i += kEach) (&mine().cells[0][0])[i] = 0;
    __syncthreads();
    Second(task.words->encoder_second, task.words->encoder_second_bias, all);
    Layer<Alone<kVqSecond>>(
        task.words->encoder_last, task.words->encoder_last_bias,
        [&](int leaf) { return &leaves[leaf].second[0][0]; }, all,
        [&](int leaf, int cell, int out, int32_t sum) {
          leaves[leaf].rest[cell][out] = VqVector(sum);
        });
  }

  template <typename Weights, typename Bias, typename Use>
  __device__ void Second(const Weights& weights, const Bias& bias, const Use& use) const {
    Layer<Around<kVqHidden, 16>>(
        weights, bias, [&](int leaf) { return &leaves[leaf].hidden[0][0]; }, use,
        [&](int leaf, int cell, int out, int32_t sum) {
          leaves[leaf].second[cell][out] = VqHidden(sum, kVqSecondShift);
        });
  }

  // The nearest codes of the leaves' next stage: a warp for each cell.
  __device__ void Assign(int stage) const {
    const int lane = Thread() % 32;
    for (int item = Thread() / 32; item < kLeaves * kVqCells; item += kThreads / 32) {
      Leaf& leaf = leaves[item / kVqCells];
      const int cell = item % kVqCells;
      if (!leaf.more || leaf.corners[cell] == 0) continue;
      int32_t pairs[kVqWidth / 2];
#pragma unroll
      for (int i = 0; i < kVqWidth / 2; ++i)
        pairs[i] = reinterpret_cast<const int32_t*>(leaf.rest[cell])[i];
      int32_t least = INT32_MAX;
      int best = 0;
      for (int code = lane; code < kVqCodes; code += 32) {
        int32_t product = 0;
#pragma unroll
        for (int i = 0; i < kVqWidth / 4; ++i) {
          const int32_t four = __ldg(&task.words->codes[stage][i][code]);
          product = __dp2a_lo(pairs[2 * i], four, product);
          product = __dp2a_hi(pairs[2 * i + 1], four, product);
        }
        const int32_t far = task.words->squares[stage][code] - 2 * product;
        if (far < least) {
          least = far;
          best = code;
        }
      }
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        const int32_t far = __shfl_xor_sync(~0u, least, lanes);
        const int other = __shfl_xor_sync(~0u, best, lanes);
        if (far < least || (far == least && other < best)) {
          least = far;
          best = other;
        }
      }
      const int64_t index = first + item / kVqCells;
      if (lane == 0)
        task.codes[(index * kVqStages + stage) * kVqCells + cell] = static_cast<uint8_t>(best);
      Take(leaf, cell, stage, best, lane);
    }
    __syncthreads();
  }
  // Adds a code's vector to those of its cell. `lane`: of kVqWidth, others have nothing to do.
  __device__ void Take(Leaf& leaf, int cell, int stage, int code, int lane) const {
    if (lane >= kVqWidth) return;
    const int32_t four = task.words->codes[stage][lane / 4][code];
    const auto number = static_cast<int8_t>(four >> (8 * (lane % 4)));
    leaf.rest[cell][lane] = static_cast<int16_t>(leaf.rest[cell][lane] - number);
    leaf.sum[cell][lane] = static_cast<int16_t>(leaf.sum[cell][lane] + number);
  }

  // What the codes so far stand for, of the leaves that have some and of which `more` is true.
  __device__ void Decode(int32_t* to) const {
    const auto use = [&](int leaf) { return leaves[leaf].more; };
    for (int i = Rank(); mine().more && i < kVqCells * kVqCellInputs; i += kEach) {
      const int cell = i / kVqCellInputs, in = i % kVqCellInputs;
      mine().cells[PaddedAt(cell)][in] =
          in < kVqWidth
              ? static_cast<int8_t>(vq::Clamp(mine().sum[cell][in], -kVqMost, kVqMost))
              : static_cast<int8_t>(kVqOne * (mine().corners[cell] >> (in - kVqWidth) & 1));
    }
    __syncthreads();
    Layer<Around<kVqCellInputs, 8>>(
        task.words->decoder_first, task.words->decoder_first_bias,
        [&](int leaf) { return &leaves[leaf].cells[0][0]; }, use,
        [&](int leaf, int cell, int out, int32_t sum) {
          leaves[leaf].hidden[PaddedAt(cell)][out] = VqHidden(sum, kVqCodesShift);
        });
    Second(task.words->decoder_second, task.words->decoder_second_bias, use);
    Layer<Alone<kVqSecond>>(
        task.words->decoder_last, task.words->decoder_last_bias,
        [&](int leaf) { return &leaves[leaf].second[0][0]; }, use,
        [&](int leaf, int cell, int out, int32_t sum) {
          const Leaf& of = leaves[leaf];
          if ((of.corners[cell] >> out & 1) == 0) return;
          to[int64_t{first + leaf} * 512 + VqVoxel(cell, out)] =
              VqNumber(VqOutput(sum), of.offset, of.spread);
        });
  }
  // All numbers are the offset; 0 where the mask is off.
  __device__ void Flat(int32_t* to) const {
    for (int voxel = Rank(); Here() && voxel < 512; voxel += kEach)
      to[Index() * 512 + voxel] = On(voxel) ? mine().offset : 0;
    __syncthreads();
  }
};

__global__ void __launch_bounds__(kThreads) Encode(const VqTask task) {
  extern __shared__ int4 bytes[];
  const Nets nets{task, reinterpret_cast<Leaf*>(bytes), static_cast<int>(blockIdx.x) * kLeaves};
  nets.Begin();
  nets.Encode();
  nets.Flat(task.restored);
  Leaf& mine = nets.mine();
  for (int stage = 0;; ++stage) {
    nets.Sum([&](int voxel) {
      return VqAddSquare(0, task.numbers[nets.Index() * 512 + voxel],
                         task.restored[nets.Index() * 512 + voxel]);
    });
    if (nets.Rank() == 0) {
      mine.more = nets.Here() && mine.scale != 0 && mine.stages == stage &&
                  stage < task.most_stages && nets.total() > mine.most;
      if (mine.more) mine.stages = stage + 1;
    }
    __syncthreads();
    if (!nets.leaves[0].more && !nets.leaves[1].more) break;
    nets.Assign(stage);
    nets.Decode(task.restored);
  }
  if (nets.Here() && nets.Rank() == 0)
    task.stages[nets.Index()] = static_cast<uint8_t>(mine.stages);
}

__global__ void __launch_bounds__(kThreads) Decode(const VqTask task) {
  extern __shared__ int4 bytes[];
  const Nets nets{task, reinterpret_cast<Leaf*>(bytes), static_cast<int>(blockIdx.x) * kLeaves};
  nets.Begin();
  Leaf& mine = nets.mine();
  nets.Place(nets.Here() ? task.offsets[nets.Index()] : 0,
             nets.Here() ? task.scales[nets.Index()] : 0);
  nets.Flat(task.numbers);
  if (nets.Here() && nets.Rank() == 0) {
    mine.stages = task.stages[nets.Index()];
    mine.more = mine.stages > 0;
  }
  __syncthreads();
  if (!nets.leaves[0].more && !nets.leaves[1].more) return;
  for (int i = nets.Rank(); mine.more && i < kVqCells * kVqWidth; i += Nets::kEach) {
    const int cell = i / kVqWidth;
    for (int stage = 0; stage < mine.stages && mine.corners[cell] != 0; ++stage) {
      const int code = task.codes[(nets.Index() * kVqStages + stage) * kVqCells + cell];
      nets.Take(mine, cell, stage, code, i % kVqWidth);
    }
  }
  __syncthreads();
  nets.Decode(task.numbers);
}

void Launch(void (*kernel)(VqTask), const VqTask& task, Stream stream) {
  if (task.leaves == 0) return;
  constexpr int kBytes = kLeaves * static_cast<int>(sizeof(Leaf));
  static_assert(kBytes <= 64 << 10, "what the smallest GPU has");
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  Require(status == cudaSuccess, "shared memory of the codes' nets");
  kernel<<<static_cast<unsigned>((task.leaves + kLeaves - 1) / kLeaves), kThreads, kBytes,
           stream>>>(task);
}

}  // namespace

void EncodeVqLeaves(const VqTask& task, Stream stream) {
  Launch(Encode, task, stream);
  CheckLaunch("EncodeVqLeaves");
}

void DecodeVqLeaves(const VqTask& task, Stream stream) {
  Launch(Decode, task, stream);
  CheckLaunch("DecodeVqLeaves");
}

}  // namespace tilery::cuda
