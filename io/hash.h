// XXH3-128 of a stream of bytes: the hash of every file's content in ledger, bricks and outcomes;
// and XXH3-64 for pieces within a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tilery {

// Not thread-safe. Equal bytes give equal hashes, however they are cut into updates.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  void Update(std::span<const std::byte> bytes);
  std::string Hex() const;  // of all bytes so far, 32 digits, as `xxh128sum` prints them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t ShortHash(std::span<const std::byte> bytes);  // XXH3-64

}  // namespace tilery
