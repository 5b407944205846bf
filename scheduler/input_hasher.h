// Hashes inputs beside a run, so that a later run can tell a touched file from a changed one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/file.h"

namespace tilery {

// One thread of low priority. Files above kLimit are left out: for them a changed time counts as a
// change.
class InputHasher {
 public:
  static constexpr int64_t kLimit = int64_t{4} << 30;  // bytes of one file
  struct Hashed {
    size_t index = 0;  // into the list given
    std::string hash;
  };
  struct Wanted {
    const std::string* path = nullptr;  // outlives the hasher
    FileStamp stamp;
    size_t index = 0;
  };
  explicit InputHasher(std::vector<Wanted> inputs);
  ~InputHasher();              // stops at once
  std::vector<Hashed> Take();  // what is new since the last call; thread-safe
  // Waits until all is hashed, but no longer than `limit`, and starts no file once `bytes` more
  // have been read.
  void Finish(int64_t bytes, std::chrono::milliseconds limit);

 private:
  std::optional<std::string> Hash(const Wanted& input);
  void Work();
  std::vector<Wanted> inputs_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> allowance_{INT64_MAX};
  std::mutex mutex_;  // guards what follows
  std::vector<Hashed> hashed_;
  bool ended_ = false;
  std::condition_variable end_;
  std::thread thread_;
};

}  // namespace tilery
