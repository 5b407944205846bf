// A model's file that one worker reads and passes on to the others (cluster/broadcast.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cluster/broadcast.h"
#include "cluster/process.h"

namespace tilery {

// Not thread-safe.
class PassedModel {
 public:
  // Takes part; all members name the same file, of `bytes` bytes, with this hash (HashFile). Rank 0
  // reads it; the others hold its bytes in memory until Release. Error(kTransient) if it did not
  // work, or if what came is not what was said: then the file itself is to be read.
  PassedModel(const std::filesystem::path& file, const std::string& hash, int64_t bytes,
              Broadcaster& broadcaster, const BroadcastSeat& seat);

  // Where the bytes can be read as a file, while this lives; empty for rank 0.
  const std::filesystem::path& at() const { return at_; }
  // Gives the memory back: at() leads to the file itself from now on. Where that can't be opened,
  // the memory is kept.
  void Release();

 private:
  void Send(Broadcaster& broadcaster, const BroadcastSeat& seat, int64_t bytes) const;
  void Receive(Broadcaster& broadcaster, const BroadcastSeat& seat, int64_t bytes);

  const std::filesystem::path file_;
  UniqueFd memory_;
  std::filesystem::path at_;
};

}  // namespace tilery
