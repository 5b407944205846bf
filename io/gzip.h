// gzip streams over our files. Not thread-safe. Source: RFC 1952.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/buffered_input.h"
#include "io/file.h"
#include "io/ordered_work.h"

struct z_stream_s;

namespace tilery {

// Decodes from front to back, members one after the other. Checksum and length of each member are
// checked when its end is reached. Error(kInput) with the path.
class GzipInput {
 public:
  explicit GzipInput(const InputFile& file);
  ~GzipInput();
  GzipInput(const GzipInput&) = delete;

  // Fills `into`; returns less only at the end of the last member.
  size_t Read(std::span<std::byte> into);
  int64_t position() const { return position_; }  // decoded bytes so far

 private:
  bool Refill();
  [[noreturn]] void Fail(const std::string& why);

  const InputFile& file_;
  BufferedInput input_;
  std::unique_ptr<z_stream_s> stream_;
  bool member_ended_ = false;
  int64_t position_ = 0;
};

// What the start of a gzip file decodes to, as far as `head` reaches; empty if it is none.
std::vector<std::byte> GunzipHead(std::span<const std::byte> head);

// Encodes blocks of a fixed size, each on its own but with the 32 KiB before it as its dictionary,
// on the threads of `pool` (null: here): the bytes depend on the data alone. No name, no time in
// the header.
class GzipOutput {
 public:
  GzipOutput(OutputFile& file, ThreadPool* pool);
  void Write(std::span<const std::byte> bytes);
  void Finish();

 private:
  void Submit(bool last);
  void WriteOldest();

  OutputFile& file_;
  std::vector<std::byte> pending_;  // the dictionary, then what is not submitted yet
  size_t dictionary_ = 0;           // bytes of it
  uint32_t crc_;
  uint64_t bytes_ = 0;
  OrderedWork<std::vector<unsigned char>> blocks_;
};

}  // namespace tilery
