// XXH3-128 of a stream of bytes: the hash of every file's content in ledger, bricks and outcomes.
#pragma once

#include <cstddef>
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

}  // namespace tilery
