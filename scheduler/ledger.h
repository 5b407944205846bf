// The SQLite file that records what is planned and done (WORK/ledger.sqlite, write-ahead log). One
// process opens it, holding the lock. Not thread-safe. Error(kOutput) for a full disk and other
// failing writes, Error(kInternal) for a damaged ledger, both naming the file and the way out.
//
// Order of things: a file is renamed, its outcome is received, the ledger commits, then what
// depends on it is deleted, published or leased. Each start raises the epoch; every transaction
// first re-reads it and throws Error(kInternal) "lock lost" if another process has raised it.
//
// What a commit is worth:
//   Durability::kRename  survives the death of any process (kill -9), since the system holds the
//                        pages of the log. A power cut may lose the newest such commits, never half
//                        of one, never older ones without newer ones. What is lost then is work,
//                        not truth: outputs are synced before they are recorded, and a claimed path
//                        without a record is made again.
//   Durability::kFsync   survives a power cut, too. For what others rely on afterwards: claims
//                        (before the first output appears), the epoch, and results whose bricks are
//                        deleted next.
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

// An exclusive lock on a work folder (created if missing, mode 0700): a lock on the open file
// WORK/lock (of the kernel's "open file description" kind, which NFS passes on and which can be
// tested without taking it); host and pid of the holder stand inside. Held until destruction or
// death. Everybody's right to write to the folder is taken; Error(kUsage) if only its owner can.
class WorkLock {
 public:
  // Error(kUsage) naming host and pid of the holder.
  explicit WorkLock(
      const std::filesystem::path& work);  // Error(kOutput) if the folder can't be made
  ~WorkLock();
  WorkLock(const WorkLock&) = delete;
  static bool Held(const std::filesystem::path& work);  // by anybody; for `status`

  // Whether the folder was not there before.
  bool made_folder() const { return !made_.empty(); }
  // For a run that was refused before it had a plan: removes the lock file and the folders that the
  // constructor has made, as far as nothing else lies in them. Nothing if it made none.
  void Discard();

 private:
  bool Take();
  void RemoveMade();

  std::filesystem::path work_;
  std::vector<std::filesystem::path> made_;  // the innermost first
  int fd_ = -1;
};

struct OutputRecord {  // a path this work folder has claimed
  std::string path, item_key;
  bool published = false;
  Published file;     // if published
  int64_t tiles = 0;  // accepted model runs that made it
};
struct BrickRecord {      // a brick, or a stage file (under its item's key, 0 tiles)
  std::string key, file;  // file: relative to scratch
  int64_t size = 0;
  std::string hash;
  int64_t tiles = 0;
};

struct KnownInput {
  FileStamp stamp;     // when its header was read last
  FileStamp identity;  // of first sight: what item keys hold. Differs from `stamp` where only times
                       // or inode have changed since and the content is the same
  Header header;
  std::string content_hash;  // "" = not known
};

// Paths of all outputs that the work folder has claimed, sorted; without lock, read-only, empty if
// it has no ledger. For `plan`, which must not count outputs of the job as inputs.
std::vector<std::string> ReadClaimedOutputs(const std::filesystem::path& work);

class Ledger {
 public:
  explicit Ledger(const std::filesystem::path& work);
  ~Ledger();
  int64_t epoch() const;  // of this run
  const std::filesystem::path& work() const;

  // Collected until Commit; all or nothing. Seen at once by the functions that read. If one throws,
  // the collected changes are gone and the ledger may be used on.
  void ClaimOutput(const std::string& path, const std::string& item_key);
  void RecordOutput(const OutputRecord& record);
  void RecordBrick(const BrickRecord& record);
  void ForgetBrick(const std::string& key);
  void RecordInput(const std::string& path, const KnownInput& input);
  void RecordFailure(const std::string& item_key, const std::string& input,
                     const std::string& stage, const std::string& reason);
  void SetMeta(const std::string& name, const std::string& value);
  void Commit(Durability durability = Durability::kFsync);  // nothing if nothing was collected

  std::optional<OutputRecord> FindOutput(const std::string& path) const;
  void EachOutput(const std::function<void(const OutputRecord&)>& visit) const;
  std::optional<BrickRecord> FindBrick(const std::string& key) const;
  void EachBrick(const std::function<void(const BrickRecord&)>& visit) const;
  std::optional<KnownInput> FindInput(const std::string& path) const;
  std::string Meta(const std::string& name) const;  // "" if unset

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
