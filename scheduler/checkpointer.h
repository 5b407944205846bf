// Moves what SQLite's write-ahead log holds into the database, on a thread of its own: on that of
// the scheduler it would stand still for some tenths of a second every few seconds.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

struct sqlite3;

namespace tilery {

// Of one connection, which has to live as long and to be used by one thread at a time; it takes the
// place of the connection's automatic checkpoints. A log is begun anew only when all of it has been
// moved, so what the thread leaves at the end of its last pass, since there were commits meanwhile,
// the connection moves itself with its next commit: a few pages. The two are never at it at the
// same time: versions of SQLite below 3.51.3 may then lose pages (sqlite.org/wal.html#walresetbug).
// Durability is SQLite's: the log is synced before anything is moved, the database before the log
// is begun anew.
class Checkpointer {
 public:
  // Pages (of 4 KiB) in the log from which it is moved, and beyond which the connection waits until
  // it is.
  static constexpr int kPages = 4000, kTooMany = 64000;
  // The thread goes on until a pass has moved fewer pages than that, or so many passes.
  static constexpr int kFew = 100, kPasses = 8;

  Checkpointer(sqlite3* connection, std::filesystem::path file);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;

 private:
  static int Committed(void* self, sqlite3* connection, const char* database, int pages);
  void Work();
  static bool MoveMost(sqlite3* own);
  sqlite3* Open() const;

  sqlite3* const connection_;
  const std::filesystem::path file_;
  std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  bool asked_ = false, rest_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace tilery
