// The chunks of a PNG file one after the other, by their headers. Internal to io.
//
// What lies behind the image data is reached without reading these: a run of data chunks of one
// size, as encoders write them, is left out by bisection (some dozen short reads), others cost one
// short read each. Not thread-safe; `file` outlives it.
#pragma once

#include <cstdint>
#include <string>

#include "io/file.h"

namespace tilery {

class PngChunks {
 public:
  explicit PngChunks(const InputFile& file) : file_(file) {}

  // Goes to the next whole chunk; false at the end, or where the file was cut. Of a run of IDAT
  // chunks only some are seen.
  bool Next();
  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }           // of its content
  bool after_data() const { return after_data_; }  // an IDAT came before

  std::string Head(int64_t bytes) const;  // the first bytes of the content, unchecked
  std::string Content() const;            // all of it; Error(kInput) if its checksum is wrong

 private:
  struct Head8 {
    int64_t size = -1;  // -1: no whole chunk
    std::string name;
  };
  Head8 HeadAt(int64_t at) const;
  void LeaveOutEqualData();

  const InputFile& file_;
  int64_t at_ = 0;  // of the current chunk; 0: before the first
  int64_t size_ = 0;
  std::string name_;
  bool after_data_ = false;
};

}  // namespace tilery
