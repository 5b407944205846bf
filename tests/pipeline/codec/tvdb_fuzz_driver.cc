// Fuzzing without libFuzzer: a fixed number of files, the same in each run, within memory and time.
//
//   tvdb_fuzz [INPUTS [SEED]]      runs so many
//   tvdb_fuzz corpus FOLDER        writes what they are made from, for libFuzzer
//   tvdb_fuzz FILE...              runs these
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "pipeline/codec/grid_file.h"
#include "tests/io/temp_folder.h"
#include "tests/pipeline/codec/random_grid.h"
#include "tests/pipeline/codec/tvdb_mutate.h"
#include "tests/pipeline/codec/tvdb_sample.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::atomic<size_t> held{0}, most_held{0};

void* Count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = held += malloc_usable_size(memory);
  if (now > most_held) most_held = now;
  return memory;
}
void Uncount(void* memory) {
  held -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return Count(std::malloc(size == 0 ? 1 : size)); }
void* operator new[](size_t size) { return Count(std::malloc(size == 0 ? 1 : size)); }
void operator delete(void* memory) noexcept { Uncount(memory); }
void operator delete[](void* memory) noexcept { Uncount(memory); }
void operator delete(void* memory, size_t) noexcept { Uncount(memory); }
void operator delete[](void* memory, size_t) noexcept { Uncount(memory); }

namespace tilery {
namespace {

// What a reader keeps (tvdb.h), and regions that are under way.
constexpr size_t kMostHeld = size_t{600} << 20;
constexpr double kMostSeconds = 60;  // of the processor, for one input; sanitizers are slow

std::vector<std::string> Corpus() {
  const TempFolder folder;
  std::vector<std::string> all;
  if (WriteTvdbSample((folder / "s.tvdb").c_str()) != 0) std::abort();
  all.push_back(ContentOf(folder / "s.tvdb"));
  const char* const bounds[] = {"lossless", "1%", "5%"};
  for (unsigned k = 0; all.size() < 12; ++k) {
    {
      OutputFile out(folder / "a.vdb", "fuzz");
      VdbWriter writer(out, 224, {{"shot", "string", "s010"}}, 2);
      for (int g = 0; g < 2; ++g)
        RandomGrid(500 + 2 * k + static_cast<unsigned>(g), g).Write(writer);
      writer.Finish();
      out.Publish(Durability::kRename);
    }
    OutputFile out(folder / "a.tvdb", "fuzz");
    CompressGrids(VdbFile(folder / "a.vdb"), out, ParseGridBounds(bounds[k % 3]));
    out.Publish(Durability::kRename);
    std::string content = ContentOf(folder / "a.tvdb");
    constexpr size_t kMost = 60000;  // larger ones take long and show nothing more
    if (content.size() < kMost) all.push_back(std::move(content));
  }
  return all;
}

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Aborts beyond the limits; the input is left for whoever looks for the reason.
void Try(const std::string& content, double* slowest) {
  MakeFile(std::filesystem::temp_directory_path() / "tvdb-fuzz-last.tvdb", content);
  const double begin = Seconds();
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size());
  const double seconds = Seconds() - begin;
  *slowest = std::max(*slowest, seconds);
  if (most_held <= kMostHeld && seconds <= kMostSeconds) return;
  std::fprintf(stderr, "an input took %zu bytes and %.1f s\n", most_held.load(), seconds);
  std::abort();
}

int Run(const std::vector<std::string>& args) {
  const std::vector<std::string> corpus = Corpus();
  if (args.size() == 2 && args[0] == "corpus") {
    for (size_t k = 0; k < corpus.size(); ++k)
      MakeFile(std::filesystem::path(args[1]) / (std::to_string(k) + ".tvdb"), corpus[k]);
    return 0;
  }
  double slowest = 0;
  if (!args.empty() && !args[0].empty() &&
      args[0].find_first_not_of("0123456789") != args[0].npos) {
    for (const std::string& file : args) Try(ContentOf(file), &slowest);
    return 0;
  }
  const long inputs = args.empty() ? 200 : std::stol(args[0]);
  std::mt19937 random(args.size() < 2 ? 1 : static_cast<unsigned>(std::stoul(args[1])));
  for (const std::string& content : corpus) Try(content, &slowest);
  // Half of them are changed once, others again and again.
  std::vector<std::string> grown = corpus;
  for (long i = 0; i < inputs; ++i) {
    std::string& from = grown[random() % grown.size()];
    std::string changed = MutateTvdb(from, size_t{1} << 20, random);
    Try(changed, &slowest);
    const auto turn = random() % 8;
    if (turn < 2) from = std::move(changed);
    if (turn == 7) from = corpus[random() % corpus.size()];
  }
  std::printf("%ld inputs; at most %zu MiB, %.2f s\n", inputs, most_held.load() >> 20, slowest);
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::Run({argv + 1, argv + argc}); }
