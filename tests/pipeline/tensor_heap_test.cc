#include "pipeline/tensor_heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "pipeline/profile.h"

namespace tilery {
namespace {

TEST(TensorHeap, BlocksAreAlignedAndTheirOwn) {
  TensorHeap heap;
  std::mt19937 random(1);
  struct Block {
    unsigned char* data;
    size_t size;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.size() > 20 || (!blocks.empty() && random() % 2 == 0)) {
      const size_t at = random() % blocks.size();
      const Block block = blocks[at];
      for (size_t k : {size_t{0}, block.size / 2, block.size - 1})
        ASSERT_EQ(block.data[k], block.mark);
      heap.Free(block.data);
      blocks.erase(blocks.begin() + at);
    } else {
      const size_t size = 1 + random() % (i % 3 == 0 ? 5'000'000 : 100'000);
      auto* data = static_cast<unsigned char*>(heap.Allocate(size));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      const auto mark = static_cast<unsigned char>(i);
      std::memset(data, mark, size);
      blocks.push_back({data, size, mark});
    }
  }
  for (const Block& block : blocks) heap.Free(block.data);
  EXPECT_EQ(heap.usage().live, 0u);
  EXPECT_EQ(heap.usage().large_blocks, 0);
}

TEST(TensorHeap, TheSameBlocksAgainTakeNoNewMemory) {
  TensorHeap heap;
  const auto round = [&] {
    void* a = heap.Allocate(40'000'000);
    void* b = heap.Allocate(20'000'000);
    heap.Free(a);
    void* c = heap.Allocate(10'000'000);
    void* d = heap.Allocate(30'000'000);  // into what `a` left
    for (void* block : {b, c, d}) std::memset(block, 1, 10'000'000);
    for (void* block : {b, c, d}) heap.Free(block);
    return c;
  };
  void* first = round();
  const TensorHeap::Usage usage = heap.usage();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(round(), first);
  EXPECT_EQ(heap.usage().mapped, usage.mapped);
  EXPECT_EQ(heap.usage().peak_live, usage.peak_live);
  EXPECT_LT(usage.peak_live, 61'000'000u);
}

TEST(TensorHeap, ABlockLargerThanASegmentGetsItsOwn) {
  TensorHeap heap;
  void* block = heap.Allocate(size_t{1} << 30);
  static_cast<char*>(block)[(size_t{1} << 30) - 1] = 1;
  heap.Free(block);
  EXPECT_EQ(heap.Allocate(size_t{1} << 30), block) << "merged into one again";
  heap.Free(block);
}

TEST(TensorHeap, TrimGivesPagesBack) {
  TensorHeap heap;
  void* block = heap.Allocate(64 << 20);
  std::memset(block, 1, 64 << 20);
  const int64_t before = PrivateMemory();
  heap.Free(block);
  heap.Trim();
  EXPECT_LT(PrivateMemory(), before - (60 << 20));
  heap.Free(heap.Allocate(64 << 20));  // still usable
}

TEST(TensorHeap, MoreThanTheAddressSpaceIsABadAlloc) {
  TensorHeap heap;
  EXPECT_THROW(heap.Allocate(size_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(heap.Allocate(SIZE_MAX), std::bad_alloc);
  heap.Free(heap.Allocate(100'000));
}

TEST(TensorHeap, ThreadsMayFreeWhatOthersAllocated) {
  TensorHeap heap;
  std::vector<void*> blocks(400);
  const auto run = [&](auto body) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t * 100; i < (t + 1) * 100; ++i) body(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  run([&](size_t i) { blocks[i] = heap.Allocate(i % 7 == 0 ? 100 : 50'000 + i); });
  run([&](size_t i) { heap.Free(blocks[(i + 150) % 400]); });
  EXPECT_EQ(heap.usage().large_blocks, 0);
}

}  // namespace
}  // namespace tilery
