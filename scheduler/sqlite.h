// SQLite behind a narrow face: the only files that include its header are sqlite.cc and ledger.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tilery {

// Throws what a result code of the library means for the file `name`: Error(kOutput) if writing
// failed, Error(kInternal) if the file is damaged or another process writes it.
[[noreturn]] void ThrowSqlite(sqlite3* db, int code, const std::string& doing,
                              const std::string& name);

// A prepared statement. Use: Bind in order, then Run, or Row until false. Not thread-safe.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& name, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;

  // Bytes are bound as a blob, without a copy: they must live until Run or the last Row.
  Statement& Bind(std::string_view bytes);
  Statement& Bind(int64_t number);
  void Run();
  bool Row();  // false: no row is left, the statement is reset
  void Reset();
  std::string Bytes(int column) const;
  int64_t Number(int column) const;

 private:
  sqlite3* db_;
  const std::string& name_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

}  // namespace tilery
