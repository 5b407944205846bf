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

// On the connection's thread. What it returns is the result of the commit, which has happened all
// the same.
int Checkpointer::Committed(void* self, sqlite3* connection, const char* database, int pages) {
  auto& me = *static_cast<Checkpointer*>(self);
  {
    const std::lock_guard lock(me.mutex_);
    if (!me.rest_ && pages < kTooMany) {
      if (pages < kPages || me.asked_) return SQLITE_OK;
      me.asked_ = true;
      me.changed_.notify_all();
      return SQLITE_OK;
    }
    me.rest_ = false;
  }
  const int code =
      sqlite3_wal_checkpoint_v2(connection, database, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  // The thread is at it, or another program reads: there will be another time.
  return code == SQLITE_BUSY ? SQLITE_OK : code;
}

// What fails here is tried again; in the end the connection itself meets it, where it is told.
void Checkpointer::Work() {
  sqlite3* own = nullptr;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return asked_ || stops_; });
    if (stops_) break;
    lock.unlock();
    if (own == nullptr) {
      sqlite3_open_v2(file_.c_str(), &own, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
      sqlite3_exec(own, "PRAGMA synchronous=NORMAL", nullptr, nullptr, nullptr);
    }
    const bool moved = Pass(own);
    lock.lock();
    asked_ = false;
    rest_ = moved;
  }
  lock.unlock();
  sqlite3_close(own);
}

bool Checkpointer::Pass(sqlite3* own) {
  return sqlite3_wal_checkpoint_v2(own, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr) ==
         SQLITE_OK;
}

}  // namespace tilery
