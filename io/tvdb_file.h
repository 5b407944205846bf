// The container of compressed grids (.tvdb): pieces of bytes with an index at the end.
//
//   header   8 bytes  8A 54 56 44 42 0D 0A 1A  ("TVDB" in what tells damaged text transfers)
//            u32      version of the format, 3
//            u32      0
//   pieces   one after the other
//   index    for each piece in their order: u32 kind, u32 grid, i32 x, i32 y, i32 z, u64 bytes,
//            u64 XXH3-64 of its bytes
//   footer   u64 bytes of the index, u64 XXH3-64 of header and index, u64 bytes of the file,
//            8 bytes of the header again, the other way round
//
// Little-endian. What a kind means is not known here (docs/tvdb-format.md). Every byte is covered:
// a file that was cut, or in which one bit has changed, is refused at the latest when the piece is
// read.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace tilery {

struct TvdbPiece {
  uint32_t kind = 0;
  uint32_t grid = 0;
  std::array<int32_t, 3> origin{};  // x, y, z
  int64_t offset = 0, bytes = 0;    // in the file
  uint64_t hash = 0;
};

// Not thread-safe; `out` outlives it and is not published. Error(kOutput) as OutputFile.
class TvdbWriter {
 public:
  explicit TvdbWriter(OutputFile& out);
  void Add(uint32_t kind, uint32_t grid, const std::array<int32_t, 3>& origin,
           std::span<const std::byte> bytes);
  void Finish();  // nothing may be added after
  const std::vector<TvdbPiece>& pieces() const { return pieces_; }

 private:
  OutputFile& out_;
  std::vector<TvdbPiece> pieces_;
};

// Reads the index when it is made, in memory that the file's size bounds. Thread-safe afterwards.
// Error(kInput) with path and place.
class TvdbFile {
 public:
  static constexpr uint32_t kVersion = 4;
  explicit TvdbFile(const std::filesystem::path& path);

  const InputFile& file() const { return file_; }
  const std::vector<TvdbPiece>& pieces() const { return pieces_; }
  std::vector<std::byte> Read(const TvdbPiece& piece) const;  // and compares its hash

 private:
  [[noreturn]] void Fail(const std::string& why) const;

  InputFile file_;
  std::vector<TvdbPiece> pieces_;
};

bool IsTvdbFile(const std::filesystem::path& path);  // by its first bytes; Error(kInput)

}  // namespace tilery
