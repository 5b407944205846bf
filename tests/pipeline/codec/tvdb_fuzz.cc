// Any bytes as a .tvdb file: each function of the C interface gives an error or a result.
//
// Under libFuzzer (preset "fuzz") it mutates files by tvdb_mutate.h; tvdb_fuzz_driver.cc does
// without libFuzzer.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "io/error.h"
#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/tvdb.h"
#include "tests/pipeline/codec/tvdb_mutate.h"

namespace tilery {
namespace {

#define REQUIRE(what)                                                                           \
  do {                                                                                          \
    if (!(what)) {                                                                              \
      std::fprintf(stderr, "line %d: %s\nlast message: %s\n", __LINE__, #what, tvdb_message()); \
      std::abort();                                                                             \
    }                                                                                           \
  } while (0)

// A result, or an error of the file that says which.
bool Ok(tvdb_code code) {
  REQUIRE(code == TVDB_OK || code == TVDB_BAD_FILE);
  if (code != TVDB_OK) REQUIRE(std::strstr(tvdb_message(), "/proc/") != nullptr);
  return code == TVDB_OK;
}

void ReadBoxes(const tvdb_file* file, size_t grid, const tvdb_info& info) {
  constexpr int64_t kEdge = 20;
  // Around the first corner and the last one, and where nothing is but maybe tiles.
  for (int place = 0; place < 3; ++place) {
    int64_t begin[3], end[3];
    for (int axis = 0; axis < 3; ++axis) {
      begin[axis] = place == 0   ? info.leaves_begin[axis] - 4
                    : place == 1 ? info.leaves_end[axis] - kEdge + 4
                                 : int64_t{4096} * axis - kEdge / 2;
      end[axis] = begin[axis] + kEdge;
    }
    const auto voxels = static_cast<size_t>(kEdge * kEdge * kEdge);
    const size_t numbers = voxels * static_cast<size_t>(info.components);
    std::vector<float> single(numbers);
    std::vector<double> wide(numbers);
    std::vector<uint8_t> active(voxels, 7);
    if (Ok(tvdb_read_f32(file, grid, begin, end, single.data(), numbers, active.data())))
      REQUIRE(*std::max_element(active.begin(), active.end()) <= 1);
    Ok(tvdb_read_f64(file, grid, begin, end, wide.data(), numbers, nullptr));
  }
}

void ReadLeaves(const tvdb_file* file, size_t grid, const tvdb_info& info) {
  tvdb_leaves* leaves = nullptr;
  if (!Ok(tvdb_leaves_open(file, grid, &leaves))) return;
  tvdb_leaf leaf;
  double sum = 0;
  tvdb_code code;
  // Upper nodes that can't be read give an error each; there may be many.
  for (int errors = 0; errors < 100 && (code = tvdb_leaves_next(leaves, &leaf)) != TVDB_END;) {
    if (!Ok(code)) {
      ++errors;
      continue;
    }
    const int last = 512 * info.components - 1;
    sum += leaf.f32 != nullptr ? leaf.f32[0] + leaf.f32[last] : leaf.f64[0] + leaf.f64[last];
  }
  volatile double used = sum;
  (void)used;
  tvdb_leaves_close(leaves);
}

void ReadAll(const tvdb_file* file) {
  for (size_t grid = 0; grid < tvdb_grid_count(file); ++grid) {
    tvdb_info info;
    size_t found;
    tvdb_entry entry;
    REQUIRE(tvdb_grid_info(file, grid, &info) == TVDB_OK);
    REQUIRE(tvdb_find(file, info.label, &found) == TVDB_OK);
    REQUIRE(info.components == (info.number == TVDB_NONE ? 0 : info.components == 1 ? 1 : 3));
    for (size_t i = 0; tvdb_metadata(file, grid, i, &entry) == TVDB_OK; ++i)
      REQUIRE(std::strlen(entry.name) + std::strlen(entry.type) < size_t{1} << 32);
    if (info.number == TVDB_NONE) {
      tvdb_leaves* none = nullptr;
      REQUIRE(tvdb_leaves_open(file, grid, &none) == TVDB_NOT_CODED && none == nullptr);
      continue;
    }
    ReadBoxes(file, grid, info);
    ReadLeaves(file, grid, info);
  }
}

void Decompress(const std::string& path) {
  const std::string name = "tvdb-fuzz-" + std::to_string(getpid()) + ".vdb";
  OutputFile out(std::filesystem::temp_directory_path() / name, "fuzz");
  try {
    DecompressGrids(TvdbFile(path), out);
  } catch (const Error& error) {
    if (error.fault() == Fault::kInput) return;
    std::fprintf(stderr, "decompress: %s\n", error.what());
    std::abort();
  }
}

// A file without a name, which goes with its descriptor.
class Memory {
 public:
  Memory(const uint8_t* data, size_t size) : fd_(memfd_create("tvdb", MFD_CLOEXEC)) {
    REQUIRE(fd_ >= 0 && write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~Memory() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

}  // namespace
}  // namespace tilery

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tilery::Memory memory(data, size);
  tvdb_file* file = nullptr;
  if (!tilery::Ok(tvdb_open(memory.path().c_str(), &file))) return 0;
  tilery::ReadAll(file);
  tvdb_close(file);
  tilery::Decompress(memory.path());
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::mt19937 random(seed);
  const std::string changed =
      tilery::MutateTvdb({reinterpret_cast<const char*>(data), size}, most, random);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
