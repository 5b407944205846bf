#include "scheduler/checkpointer.h"

#include <sqlite3.h>

#include <utility>

namespace tilery {

Checkpointer::Checkpointer(sqlite3* connection, std::filesystem::path file)
    : connection_(connection), file_(std::move(file)), thread_([this] { Work(); }) {
  sqlite3_wal_hook(connection_, Committed, this);
}

Checkpointer::~Checkpointer() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
  sqlite3_wal_hook(connection_, nullptr, nullptr);
}

// On the connection's thread. The commit has happened, so what fails here is no failure of it: the
// log keeps all, and is moved another time.
int Checkpointer::Committed(void* self, sqlite3* connection, const char* database, int pages) {
  auto& me = *static_cast<Checkpointer*>(self);
  {
    std::unique_lock lock(me.mutex_);
    if (pages >= kTooMany) me.changed_.wait(lock, [&] { return !me.asked_; });
    if (me.asked_) return SQLITE_OK;
    if (!me.rest_ && pages < kTooMany) {
      me.asked_ = pages >= kPages;
      if (me.asked_) me.changed_.notify_all();
      return SQLITE_OK;
    }
    me.rest_ = false;
  }
  sqlite3_wal_checkpoint_v2(connection, database, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  return SQLITE_OK;
}

void Checkpointer::Work() {
  sqlite3* own = nullptr;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return asked_ || stops_; });
    if (stops_) break;
    lock.unlock();
    if (own == nullptr) own = Open();
    const bool moved = own != nullptr && MoveMost(own);
    lock.lock();
    asked_ = false;
    rest_ = moved;
    changed_.notify_all();
  }
  lock.unlock();
  sqlite3_close(own);
}

// A pass leaves what was committed while it ran. Each takes less time than the one before, so what
// is left in the end is little, and that is what the connection stands still for.
bool Checkpointer::MoveMost(sqlite3* own) {
  int moved = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    int in_log = 0, moved_now = 0;
    if (sqlite3_wal_checkpoint_v2(own, nullptr, SQLITE_CHECKPOINT_PASSIVE, &in_log, &moved_now) !=
        SQLITE_OK)
      return false;
    if (moved_now - std::exchange(moved, moved_now) < kFew) break;
  }
  return true;
}

sqlite3* Checkpointer::Open() const {
  sqlite3* own = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  // A connection that has read nothing does not know of the log, and moves nothing.
  constexpr const char* kBegin = "PRAGMA synchronous=NORMAL; SELECT count(*) FROM sqlite_master";
  if (sqlite3_open_v2(file_.c_str(), &own, flags, nullptr) == SQLITE_OK &&
      sqlite3_exec(own, kBegin, nullptr, nullptr, nullptr) == SQLITE_OK)
    return own;
  sqlite3_close(own);
  return nullptr;
}

}  // namespace tilery
