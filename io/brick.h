// Brick files: the result of one infer unit on disk. A cache, not a document.
//
// A brick holds named arrays, each of one dtype over one box of the item's output grid, [z,y,x,c]
// dense. Every array is stored in blocks of whole rows or planes of about 256 KiB, each with an
// XXH3-64 checksum; the table at the end carries one of its own. (Who reads a band reads the blocks
// at its edges whole, so they are small beside a band.) A brick also carries the key of
// its unit (32 hex digits), so that a stray brick is never taken for another. Byte order is
// little-endian. Errors on reading: Error(kTransient), since the unit can be run again; on writing:
// Error(kOutput).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/view.h"

namespace tilery {

struct BrickArray {
  std::string name;  // "interior" (output dtype) or "seam.<n>" (f32 partial sums)
  DType dtype = DType::kF32;
  int64_t channels = 0;
  Box box;
};

// Not thread-safe.
class BrickWriter {
 public:
  BrickWriter(const std::filesystem::path& target, const std::string& attempt,
              const std::string& unit_key);
  ~BrickWriter();
  // `data` must have array's dtype, channels and box shape.
  void Add(const BrickArray& array, const ConstView& data);
  Published Finish();  // rename without fsync; no re-read beyond its own checksums

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Thread-safe for Read after construction. Opening checks magic, version, key, table and file size.
class BrickReader {
 public:
  BrickReader(const std::filesystem::path& path, const std::string& unit_key);
  ~BrickReader();
  const std::vector<BrickArray>& arrays() const;
  // Reads `region` (output grid, inside arrays()[index].box) into `out` (same dtype, channels,
  // shape), checking every block it touches.
  void Read(size_t index, const Box& region, const View& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Checks all blocks. Error(kTransient) if anything is wrong.
void VerifyBrick(const std::filesystem::path& path, const std::string& unit_key);

}  // namespace tilery
