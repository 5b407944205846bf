// How fast rows become a PNG, against libpng in one thread as it was used before.
//
//   png_bench [FOLDER [MEGABYTES [MOST_THREADS]]]     (the system's folder for temporaries, 1000,
//   all)
//
// Needs no data and no other program: the picture is noise of five octaves, which filters leave as
// large as they leave photographs, with the noise of a sensor over it. For 8-bit RGB, 16-bit RGB
// and 8-bit gray prints one line for libpng and one for each number of threads: GB/s of raw
// samples (best of three, bands in memory to a file that is not synced), the ratio to libpng in the
// same run, and the size of the file against libpng's.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/error.h"
#include "io/png.h"
#include "io/thread_pool.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 3;
constexpr int64_t kWidth = 8192, kBandRows = 512;

// Smooth noise of one octave: random values at a lattice, bilinear between them.
void AddOctave(int64_t step, float height, uint32_t seed, std::vector<float>* plane) {
  std::minstd_rand random(seed);
  const int64_t columns = kWidth / step + 2, rows = kBandRows / step + 2;
  std::vector<float> lattice(static_cast<size_t>(columns * rows));
  for (float& value : lattice) {
    value = height * (static_cast<float>(random() >> 8 & 0xFFFF) / 32768.f - 1);
  }
  for (int64_t y = 0; y < kBandRows; ++y) {
    const float fy = static_cast<float>(y % step) / static_cast<float>(step);
    const float* const upper = &lattice[static_cast<size_t>(y / step * columns)];
    const float* const lower = upper + columns;
    for (int64_t x = 0; x < kWidth; ++x) {
      const float fx = static_cast<float>(x % step) / static_cast<float>(step);
      const int64_t i = x / step;
      (*plane)[static_cast<size_t>(y * kWidth + x)] +=
          (upper[i] * (1 - fx) + upper[i + 1] * fx) * (1 - fy) +
          (lower[i] * (1 - fx) + lower[i + 1] * fx) * fy;
    }
  }
}

// One band of samples; the picture is this band again and again.
std::vector<std::byte> MakeBand(const Header& header) {
  const bool wide = header.dtype == DType::kU16;
  const float range = wide ? 65535 : 255;
  std::vector<float> light(static_cast<size_t>(kWidth * kBandRows), 0.5f);
  uint32_t seed = 1;
  for (const int64_t step : {256, 64, 16, 8, 4}) {
    AddOctave(step, 0.002f * std::sqrt(static_cast<float>(step)) * 4, seed++, &light);
  }
  std::minstd_rand random(seed);
  std::vector<std::byte> band(light.size() * static_cast<size_t>(header.channels) *
                              DTypeSize(header.dtype));
  for (size_t i = 0, at = 0; i < light.size(); ++i) {
    for (int c = 0; c < header.channels; ++c) {
      float noise = -2;  // of four uniform numbers: nearly normal, deviation 0.58
      for (int k = 0; k < 4; ++k) noise += static_cast<float>(random() >> 8 & 0xFFFF) / 65536.f;
      const float tint = 1 - 0.1f * static_cast<float>(c);
      const float value = light[i] * tint * range + 0.02f * range * noise;
      const auto sample = static_cast<uint16_t>(std::clamp(value, 0.f, range));
      band[at++] = static_cast<std::byte>(sample);
      if (wide) band[at++] = static_cast<std::byte>(sample >> 8);
    }
  }
  return band;
}

struct Run {
  double seconds = 1e9;
  int64_t size = 0;
};

Run Best(const fs::path& folder, const std::function<void(OutputFile&)>& write) {
  Run best;
  for (int i = 0; i < kRounds; ++i) {
    OutputFile file(folder / "png_bench.png", SmallFileAttempt());
    const auto begin = std::chrono::steady_clock::now();
    write(file);
    const auto end = std::chrono::steady_clock::now();
    best.seconds = std::min(best.seconds, std::chrono::duration<double>(end - begin).count());
    best.size = file.size();
  }
  return best;
}

void WriteByLibpng(OutputFile& file, const Header& header, const std::vector<std::byte>& band) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t bytes) {
        static_cast<OutputFile*>(png_get_io_ptr(p))
            ->Write({reinterpret_cast<const std::byte*>(data), bytes});
      },
      [](png_structp) {});
  png_set_compression_level(png, 1);
  png_set_compression_strategy(png, Z_RLE);
  png_set_compression_buffer_size(png, 256 << 10);
  png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_PAETH);
  png_set_IHDR(png, info, static_cast<png_uint_32>(header.shape[2]),
               static_cast<png_uint_32>(header.shape[1]),
               static_cast<int>(8 * DTypeSize(header.dtype)),
               header.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_set_swap(png);
  const size_t row_bytes = band.size() / kBandRows;
  for (int64_t y = 0; y < header.shape[1]; ++y) {
    const std::byte* row = band.data() + static_cast<size_t>(y % kBandRows) * row_bytes;
    png_write_row(png, reinterpret_cast<png_const_bytep>(row));
  }
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
}

void WriteByUs(OutputFile& file, const Header& header, const std::vector<std::byte>& band,
               ThreadPool* pool) {
  WriteSpec spec;
  spec.header = header;
  spec.pool = pool;
  const std::unique_ptr<Writer> writer = CreatePng(file, spec);
  for (int64_t y = 0; y < header.shape[1]; y += kBandRows) {
    writer->Write({{0, y, 0}, {1, y + kBandRows, kWidth}},
                  DenseView(band.data(), header.dtype, header.channels, {1, kBandRows, kWidth},
                            Layout::kInterleaved));
  }
  writer->Finish();
}

int Main(int argc, char** argv) {
  const fs::path folder = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 1000;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int most = argc > 3 ? std::atoi(argv[3]) : cores;
  if (argc > 4 || megabytes < 1 || most < 1) {
    std::fputs("usage: png_bench [FOLDER [MEGABYTES [MOST_THREADS]]]\n", stderr);
    return 2;
  }
  for (const auto& [dtype, channels] :
       {std::pair{DType::kU8, 3}, {DType::kU16, 3}, {DType::kU8, 1}}) {
    Header header{"png", dtype, 2, AlphaKind::kNone, Access::kRandom, channels, {1, 0, kWidth}};
    const std::vector<std::byte> band = MakeBand(header);
    const int64_t bands =
        std::max<int64_t>(1, megabytes * 1000000 / static_cast<int64_t>(band.size()));
    header.shape[1] = bands * kBandRows;
    const double raw = static_cast<double>(bands) * static_cast<double>(band.size());
    std::printf("%s x %d, %ld x %ld, %.0f MB\n", DTypeName(dtype), channels,
                static_cast<long>(kWidth), static_cast<long>(header.shape[1]), raw / 1e6);
    const Run former = Best(folder, [&](OutputFile& f) { WriteByLibpng(f, header, band); });
    std::printf("  libpng      %6.3f GB/s         %.4f of raw\n", raw / 1e9 / former.seconds,
                static_cast<double>(former.size) / raw);
    for (int threads = 1; threads <= most;
         threads = threads < most ? std::min(2 * threads, most) : most + 1) {
      ThreadPool pool(threads);
      const Run run = Best(folder, [&](OutputFile& f) { WriteByUs(f, header, band, &pool); });
      std::printf(
          "  %3d threads %6.3f GB/s %6.2fx  %.4f of raw, %+.2f %%\n", threads,
          raw / 1e9 / run.seconds, former.seconds / run.seconds,
          static_cast<double>(run.size) / raw,
          100.0 * static_cast<double>(run.size - former.size) / static_cast<double>(former.size));
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) {
  try {
    return tilery::Main(argc, argv);
  } catch (const tilery::Error& e) {
    std::fprintf(stderr, "png_bench: %s\n", e.what());
    return 1;
  }
}
