#include "scheduler/sqlite.h"

#include <sqlite3.h>

#include <cerrno>

#include "io/error.h"

namespace tilery {

void ThrowSqlite(sqlite3* db, int code, const std::string& doing, const std::string& name) {
  const std::string what = doing + " " + name + ": ";
  const std::string said = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_FULL:
      throw Error(Fault::kOutput, Errno(what + said, ENOSPC) + "; free space and run again");
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM: {
      const int number = db != nullptr ? sqlite3_system_errno(db) : 0;
      throw Error(Fault::kOutput, number != 0 ? Errno(what + said, number) : what + said);
    }
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw Error(Fault::kInternal, what + "the file is damaged (" + said +
                                        "): remove it to begin anew; outputs that exist are then "
                                        "unknown, see output.existing");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(Fault::kInternal, what + "lock lost: another process writes it (" + said + ")");
    default:
      throw Error(Fault::kInternal, what + said);
  }
}

Statement::Statement(sqlite3* db, const std::string& name, const char* sql) : db_(db), name_(name) {
  const int code = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  if (code != SQLITE_OK) ThrowSqlite(db, code, "prepare for", name);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bind(std::string_view bytes) {
  // An empty view may have no address, which SQLite would take for NULL.
  sqlite3_bind_blob64(statement_, ++bound_, bytes.data() != nullptr ? bytes.data() : "",
                      bytes.size(), SQLITE_STATIC);
  return *this;
}

Statement& Statement::Bind(int64_t number) {
  sqlite3_bind_int64(statement_, ++bound_, number);
  return *this;
}

void Statement::Run() {
  while (Row()) {
  }
}

bool Statement::Row() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) {
    // The message belongs to the failed step, so it is taken before the reset.
    struct Resetter {
      Statement* s;
      ~Resetter() { s->Reset(); }
    } resetter{this};
    ThrowSqlite(db_, sqlite3_extended_errcode(db_), "use", name_);
  }
  Reset();
  return false;
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  bound_ = 0;
}

std::string Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data != nullptr ? std::string(static_cast<const char*>(data), static_cast<size_t>(size))
                         : "";
}

int64_t Statement::Number(int column) const { return sqlite3_column_int64(statement_, column); }

}  // namespace tilery
