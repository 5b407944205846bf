// Stage files: an input without random access, decoded once into dense samples on scratch, so that units
// can read boxes of it. A cache of one run: never fsynced, never adopted by a later run.
//
//   64 bytes: "TILSTAG1", key of the item (32 hex digits), dtype (u32), channels (u32), zeros; then the
//   samples [z,y,x,c] in host byte order
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "io/error.h"
#include "io/file.h"
#include "io/format.h"

namespace tilery {

// Not thread-safe. Error(kOutput).
class StageFileWriter {
 public:
  StageFileWriter(const std::filesystem::path& target, const std::string& attempt,
                  const Header& header, const std::string& key);
  void Write(const ConstView& band);  // dense, interleaved; bands in order
  // Error(kInternal) unless all samples were written.
  Published Publish(const std::function<void()>& may_rename);

 private:
  OutputFile file_;
  int64_t expected_;
};

// Thread-safe. Error(kTransient) if the file is missing, cut short or another item's.
class StageFileReader {
 public:
  StageFileReader(const std::filesystem::path& path, const Header& header, const std::string& key);
  // `out`: dense, interleaved, shape of `box`.
  void Read(const Box& box, const View& out) const;

 private:
  InputFile file_;
  Index shape_;
  int64_t voxel_bytes_;
};

}  // namespace tilery
