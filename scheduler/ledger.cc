#include "scheduler/ledger.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "io/error.h"
#include "scheduler/checkpointer.h"
#include "scheduler/sqlite.h"
#include "scheduler/wire.h"

namespace tilery {
namespace {

constexpr int kApplication =
    0x54494c59;  // "TILY", so that a foreign SQLite file is not taken for ours
constexpr int kSchema = 1;

constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS meta(name BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outputs(
  path BLOB PRIMARY KEY, item_key BLOB NOT NULL, published INTEGER NOT NULL, size INTEGER NOT NULL,
  hash BLOB NOT NULL, stamp_size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL, tiles INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bricks(
  key BLOB PRIMARY KEY, file BLOB NOT NULL, size INTEGER NOT NULL, hash BLOB NOT NULL,
  tiles INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inputs(
  path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL, first_size INTEGER NOT NULL, first_mtime_ns INTEGER NOT NULL,
  first_ctime_ns INTEGER NOT NULL, first_inode INTEGER NOT NULL, header BLOB NOT NULL,
  content_hash BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failures(
  epoch INTEGER NOT NULL, item_key BLOB NOT NULL, input BLOB NOT NULL, stage BLOB NOT NULL,
  reason BLOB NOT NULL);
)";

constexpr const char* kOutputColumns =
    "SELECT path, item_key, published, size, hash, stamp_size, mtime_ns, ctime_ns, inode, tiles "
    "FROM outputs";
constexpr const char* kBrickColumns = "SELECT key, file, size, hash, tiles FROM bricks";

OutputRecord OutputOf(const Statement& row) {
  OutputRecord record;
  record.path = row.Bytes(0);
  record.item_key = row.Bytes(1);
  record.published = row.Number(2) != 0;
  record.file.size = row.Number(3);
  record.file.hash = row.Bytes(4);
  record.file.stamp = {row.Number(5), row.Number(6), row.Number(7),
                       static_cast<uint64_t>(row.Number(8))};
  record.tiles = row.Number(9);
  return record;
}

BrickRecord BrickOf(const Statement& row) {
  return {row.Bytes(0), row.Bytes(1), row.Number(2), row.Bytes(3), row.Number(4)};
}

}  // namespace

struct Ledger::Impl {
  explicit Impl(const std::filesystem::path& work_in)
      : work(work_in), file(work / "ledger.sqlite"), name(Printable(file.string())) {
    CheckMagic();
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(file.c_str(), &db, flags, nullptr);
    try {
      if (code != SQLITE_OK) ThrowSqlite(db, code, "open", name);
      sqlite3_extended_result_codes(db, 1);
      sqlite3_busy_timeout(db, 5000);
      Open();
    } catch (...) {
      Close();
      throw;
    }
  }
  ~Impl() { Close(); }

  void Close() {
    checkpointer.reset();
    statements.reset();
    if (db != nullptr && sqlite3_get_autocommit(db) == 0) {
      sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    sqlite3_close(db);
    db = nullptr;
  }

  void CheckMagic() const {
    std::ifstream in(file, std::ios::binary);
    std::string magic(16, '\0');
    in.read(magic.data(), 16);
    // An empty file is what a process leaves that dies right after creating it.
    if (!in.is_open() || in.gcount() == 0) return;
    if (in.gcount() < 16 || magic != std::string("SQLite format 3\0", 16)) {
      ThrowSqlite(nullptr, SQLITE_NOTADB, "open", name);
    }
  }

  void Open() {
    Execute("PRAGMA journal_mode=WAL");
    Execute("PRAGMA synchronous=NORMAL");
    Execute("PRAGMA cache_size=-16384");
    checkpointer = std::make_unique<Checkpointer>(db, file);
    const bool fresh = Value("SELECT count(*) FROM sqlite_master") == "0";
    if (!fresh) {
      if (Value("PRAGMA application_id") != std::to_string(kApplication)) {
        throw Error(Fault::kInternal,
                    name +
                        " is no ledger of tilery: remove it, or choose another work "
                        "folder with execution.work (--work)");
      }
      if (Value("PRAGMA user_version") != std::to_string(kSchema)) {
        throw Error(Fault::kInternal, name + " was written by another version of tilery (schema " +
                                          Value("PRAGMA user_version") + ", this one knows " +
                                          std::to_string(kSchema) +
                                          "): use that one, or another work folder");
      }
      if (const std::string check = Value("PRAGMA quick_check(1)"); check != "ok") {
        ThrowSqlite(nullptr, SQLITE_CORRUPT, "check", name);
      }
    }
    Execute("BEGIN IMMEDIATE");
    Execute(("PRAGMA application_id=" + std::to_string(kApplication)).c_str());
    Execute(("PRAGMA user_version=" + std::to_string(kSchema)).c_str());
    Execute(kTables);
    statements = std::make_unique<Statements>(db, name);
    epoch = ReadEpoch() + 1;
    statements->set_meta.Bind("epoch").Bind(std::to_string(epoch)).Run();
    Execute("DELETE FROM failures");  // of earlier runs: what failed is tried again
    Execute("COMMIT");
    Sync();
  }

  void Execute(const char* sql) {
    const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) ThrowSqlite(db, code, "use", name);
  }

  std::string Value(const char* sql) {
    Statement statement(db, name, sql);
    return statement.Row() ? statement.Bytes(0) : "";
  }

  int64_t ReadEpoch() {
    const std::string text = Meta("epoch");
    return text.empty() ? 0 : std::atoll(text.c_str());
  }

  std::string Meta(const std::string& key) {
    Statement& get = statements->get_meta.Bind(key);
    std::string value;
    if (get.Row()) value = get.Bytes(0);
    get.Reset();
    return value;
  }

  // Runs one change inside the collecting transaction, which it begins if there is none. The write
  // lock is held from its beginning, so the epoch can't change before its end.
  template <typename Work>
  void Change(Work work) {
    try {
      if (!collecting) {
        Execute("BEGIN IMMEDIATE");
        collecting = true;
        if (ReadEpoch() != epoch) {
          throw Error(Fault::kInternal, "lock lost: another run (epoch " +
                                            std::to_string(ReadEpoch()) + ") has taken over " +
                                            name + " from this one (epoch " +
                                            std::to_string(epoch) + ")");
        }
      }
      work(*statements);
    } catch (...) {
      Rollback();
      throw;
    }
  }

  void Rollback() {
    if (collecting && sqlite3_get_autocommit(db) == 0) {
      sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    collecting = false;
  }

  void Commit(Durability durability) {
    if (!collecting) return;
    try {
      Execute("COMMIT");
    } catch (...) {
      Rollback();
      throw;
    }
    collecting = false;
    if (durability == Durability::kFsync) Sync();
  }

  // The log holds all commits that are not in the main file, which SQLite itself syncs before it
  // forgets them from the log.
  void Sync() const {
    const std::string log = file.string() + "-wal";
    const int fd = open(log.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;  // no log: all is in the main file
    const int code = fdatasync(fd);
    const int reason = errno;
    close(fd);
    if (code != 0) throw Error(Fault::kOutput, Errno("sync " + Printable(log), reason));
    if (std::exchange(folder_synced, true)) return;
    const int folder = open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      fsync(folder);
      close(folder);
    }
  }

  struct Statements {
    Statements(sqlite3* db, const std::string& n)
        : set_meta(
              db, n,
              "INSERT INTO meta VALUES(?,?) ON CONFLICT(name) DO UPDATE SET value=excluded.value"),
          get_meta(db, n, "SELECT value FROM meta WHERE name=?"),
          claim(db, n,
                "INSERT INTO outputs VALUES(?,?,0,0,'',0,0,0,0,0) ON CONFLICT(path) DO UPDATE SET "
                "item_key=excluded.item_key, published=0 WHERE item_key<>excluded.item_key"),
          record(db, n, "INSERT OR REPLACE INTO outputs VALUES(?,?,?,?,?,?,?,?,?,?)"),
          output(db, n, (std::string(kOutputColumns) + " WHERE path=?").c_str()),
          record_brick(db, n, "INSERT OR REPLACE INTO bricks VALUES(?,?,?,?,?)"),
          forget_brick(db, n, "DELETE FROM bricks WHERE key=?"),
          brick(db, n, (std::string(kBrickColumns) + " WHERE key=?").c_str()),
          record_input(db, n, "INSERT OR REPLACE INTO inputs VALUES(?,?,?,?,?,?,?,?,?,?,?)"),
          input(
              db, n,
              "SELECT size, mtime_ns, ctime_ns, inode, first_size, first_mtime_ns, first_ctime_ns, "
              "first_inode, header, content_hash FROM inputs WHERE path=?"),
          failure(db, n, "INSERT INTO failures VALUES(?,?,?,?,?)") {}
    Statement set_meta, get_meta, claim, record, output, record_brick, forget_brick, brick,
        record_input, input, failure;
  };

  const std::filesystem::path work, file;
  const std::string name;
  sqlite3* db = nullptr;
  std::unique_ptr<Statements> statements;
  std::unique_ptr<Checkpointer> checkpointer;
  int64_t epoch = 0;
  bool collecting = false;
  mutable bool folder_synced = false;
};

Ledger::Ledger(const std::filesystem::path& work) : impl_(std::make_unique<Impl>(work)) {}
Ledger::~Ledger() = default;

int64_t Ledger::epoch() const { return impl_->epoch; }
const std::filesystem::path& Ledger::work() const { return impl_->work; }

void Ledger::ClaimOutput(const std::string& path, const std::string& item_key) {
  impl_->Change([&](auto& s) { s.claim.Bind(path).Bind(item_key).Run(); });
}

void Ledger::RecordOutput(const OutputRecord& r) {
  impl_->Change([&](auto& s) {
    const FileStamp& stamp = r.file.stamp;
    s.record.Bind(r.path)
        .Bind(r.item_key)
        .Bind(r.published ? 1 : 0)
        .Bind(r.file.size)
        .Bind(r.file.hash);
    s.record.Bind(stamp.size).Bind(stamp.mtime_ns).Bind(stamp.ctime_ns);
    s.record.Bind(static_cast<int64_t>(stamp.inode)).Bind(r.tiles).Run();
  });
}

void Ledger::RecordBrick(const BrickRecord& r) {
  impl_->Change([&](auto& s) {
    s.record_brick.Bind(r.key).Bind(r.file).Bind(r.size).Bind(r.hash).Bind(r.tiles).Run();
  });
}

void Ledger::ForgetBrick(const std::string& key) {
  impl_->Change([&](auto& s) { s.forget_brick.Bind(key).Run(); });
}

void Ledger::RecordInput(const std::string& path, const KnownInput& input) {
  std::string header;
  Json::to_msgpack(ToJson(input.header), nlohmann::detail::output_adapter<char>(header));
  impl_->Change([&](auto& s) {
    s.record_input.Bind(path);
    for (const FileStamp& stamp : {input.stamp, input.identity})
      s.record_input.Bind(stamp.size)
          .Bind(stamp.mtime_ns)
          .Bind(stamp.ctime_ns)
          .Bind(static_cast<int64_t>(stamp.inode));
    s.record_input.Bind(header).Bind(input.content_hash).Run();
  });
}

void Ledger::RecordFailure(const std::string& item_key, const std::string& input,
                           const std::string& stage, const std::string& reason) {
  impl_->Change([&](auto& s) {
    s.failure.Bind(impl_->epoch).Bind(item_key).Bind(input).Bind(stage).Bind(reason).Run();
  });
}

void Ledger::SetMeta(const std::string& name, const std::string& value) {
  impl_->Change([&](auto& s) { s.set_meta.Bind(name).Bind(value).Run(); });
}

void Ledger::Commit(Durability durability) { impl_->Commit(durability); }

std::optional<OutputRecord> Ledger::FindOutput(const std::string& path) const {
  Statement& find = impl_->statements->output.Bind(path);
  std::optional<OutputRecord> found;
  if (find.Row()) found = OutputOf(find);
  find.Reset();
  return found;
}

void Ledger::EachOutput(const std::function<void(const OutputRecord&)>& visit) const {
  Statement all(impl_->db, impl_->name, kOutputColumns);
  while (all.Row()) visit(OutputOf(all));
}

std::optional<BrickRecord> Ledger::FindBrick(const std::string& key) const {
  Statement& find = impl_->statements->brick.Bind(key);
  std::optional<BrickRecord> found;
  if (find.Row()) found = BrickOf(find);
  find.Reset();
  return found;
}

void Ledger::EachBrick(const std::function<void(const BrickRecord&)>& visit) const {
  Statement all(impl_->db, impl_->name, kBrickColumns);
  while (all.Row()) visit(BrickOf(all));
}

std::optional<KnownInput> Ledger::FindInput(const std::string& path) const {
  Statement& find = impl_->statements->input.Bind(path);
  std::optional<KnownInput> found;
  if (find.Row()) {
    auto stamp = [&](int first) {
      return FileStamp{find.Number(first), find.Number(first + 1), find.Number(first + 2),
                       static_cast<uint64_t>(find.Number(first + 3))};
    };
    found.emplace();
    found->stamp = stamp(0);
    found->identity = stamp(4);
    found->content_hash = find.Bytes(9);
    const Json header = Json::from_msgpack(find.Bytes(8), true, false);
    find.Reset();
    found->header = HeaderFromJson(header);
  }
  find.Reset();
  return found;
}

std::string Ledger::Meta(const std::string& name) const { return impl_->Meta(name); }

std::vector<std::string> ReadClaimedOutputs(const std::filesystem::path& work) {
  const std::filesystem::path file = work / "ledger.sqlite";
  std::vector<std::string> paths;
  if (!StampOf(file)) return paths;
  sqlite3* db = nullptr;
  const std::string name = Printable(file.string());
  const int code = sqlite3_open_v2(file.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> close(db, sqlite3_close);
  if (code != SQLITE_OK) ThrowSqlite(db, code, "open", name);
  sqlite3_busy_timeout(db, 5000);
  Statement tables(db, name, "SELECT count(*) FROM sqlite_master WHERE name='outputs'");
  // A process that dies right after creating the file leaves no table.
  if (!tables.Row() || tables.Number(0) == 0) return paths;
  Statement all(db, name, "SELECT path FROM outputs ORDER BY path");
  while (all.Row()) paths.push_back(all.Bytes(0));
  return paths;
}

}  // namespace tilery
