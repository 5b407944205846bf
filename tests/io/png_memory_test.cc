// What a writer does when memory runs out on a thread of its pool. Apart from the other tests,
// since it replaces the program's operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "io/thread_pool.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace {

constexpr size_t kLarge = 100 << 10;
thread_local bool refuses_large = false;

}  // namespace

// Not inlined, or GCC warns of a pair that does not match.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (refuses_large && bytes >= kLarge) throw std::bad_alloc();
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// What asks without exceptions is given memory of the same kind: all of it goes to std::free().
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return refuses_large && bytes >= kLarge ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tilery {
namespace {

TEST(PngMemoryTest, ItsLackOnAThreadOfThePoolIsAnErrorWithTheNameThatMayPass) {
  const TempFolder folder;
  ThreadPool pool(3, [] { refuses_large = true; });
  Picture picture =
      MakePicture({"png", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, 2000, 1000}});
  const std::string message = ErrorOf(Fault::kTransient, [&] {
    OutputFile file(folder / "large.png", "test");
    const auto writer = CreateWriter(file, {picture.header, {}, &pool});
    WriteBands(*writer, picture, 100);
  });
  EXPECT_NE(message.find("large.png"), std::string::npos) << message;
  EXPECT_NE(message.find("memory"), std::string::npos) << message;
  EXPECT_EQ(EntriesOf(folder.path()), 0);
}

}  // namespace
}  // namespace tilery
