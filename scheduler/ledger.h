// The SQLite file that records what is planned and done. One process opens it, holding the lock. Not
// thread-safe. Error(kOutput) for a full disk, Error(kInternal) for a damaged ledger, both naming the file.
//
// Order of things: a file is renamed, its outcome is received, the ledger commits, then what depends on it
// is deleted, published or leased. Each start raises the epoch; every commit first re-reads it and
// throws Error(kInternal) "lock lost" if another process has raised it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/format.h"

namespace tilery {

// An exclusive lock on a work folder (created if missing, mode 0700). Held until destruction or death.
class WorkLock {
 public:
  // Error(kUsage) naming host and pid of the holder.
  explicit WorkLock(const std::filesystem::path& work);
  ~WorkLock();
  WorkLock(const WorkLock&) = delete;
  static bool Held(const std::filesystem::path& work);  // by anybody; for `status`

 private:
  int fd_ = -1;
};

struct OutputRecord {   // a path this work folder has claimed
  std::string path, item_key;
  bool published = false;
  Published file;       // if published
  int64_t tiles = 0;    // accepted model runs that made it
};
struct BrickRecord {
  std::string key, file;  // file: relative to scratch
  int64_t size = 0;
  std::string hash;
  int64_t tiles = 0;
};

class Ledger {
 public:
  explicit Ledger(const std::filesystem::path& work);
  ~Ledger();
  int64_t epoch() const;  // of this run

  // Collected until Commit; all or nothing.
  void ClaimOutput(const std::string& path, const std::string& item_key);
  void RecordOutput(const OutputRecord& record);
  void RecordBrick(const BrickRecord& record);
  void ForgetBrick(const std::string& key);
  void RecordHeader(const std::string& input, const FileStamp& stamp, const Header& header,
                    const std::string& content_hash);  // "" = not known
  void RecordFailure(const std::string& item_key, const std::string& input, const std::string& stage,
                     const std::string& reason);
  void SetMeta(const std::string& name, const std::string& value);
  void Commit();

  std::optional<OutputRecord> FindOutput(const std::string& path) const;
  void EachOutput(const std::function<void(const OutputRecord&)>& visit) const;
  std::optional<BrickRecord> FindBrick(const std::string& key) const;
  void EachBrick(const std::function<void(const BrickRecord&)>& visit) const;
  struct KnownInput { FileStamp stamp; Header header; std::string content_hash; };
  std::optional<KnownInput> FindInput(const std::string& path) const;
  std::string Meta(const std::string& name) const;  // "" if unset

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
