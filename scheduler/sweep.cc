#include <unistd.h>

#include <charconv>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "io/error.h"
#include "scheduler/attempt_name.h"
#include "scheduler/brick_name.h"
#include "scheduler/resume.h"

namespace tilery {
namespace {

constexpr size_t kKeyDigits = 32;

std::optional<int64_t> WholeNumber(std::string_view text) {
  int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end || value < 0)
    return std::nullopt;
  return value;
}

std::vector<std::string> Fields(const std::string& name) {
  std::vector<std::string> fields(1);
  for (char c : name) {
    if (c == '.') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

bool IsKey(const std::string& text) {
  return text.size() == kKeyDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Splits the recorded bricks into files to keep, since a unit of this plan would make them, and
// keys to forget. The plan may have millions of units, so the few records are looked up, not the
// units stored.
struct Recorded {
  std::unordered_set<std::string> kept_files;
  std::vector<std::string> forgotten_keys;
};
Recorded JudgeRecords(const Plan& plan, const std::string& numerics_key, const Ledger& ledger) {
  std::unordered_map<std::string, std::string> records;
  ledger.EachBrick([&](const BrickRecord& brick) { records.emplace(brick.key, brick.file); });
  Recorded judged;
  for (const Item& item : plan.items) {
    if (records.empty()) break;
    if (!item.refused.empty() || item.infer_units < 2) continue;
    const auto keep = [&](const std::string& key) {
      const auto found = records.find(key);
      if (found == records.end()) return;
      judged.kept_files.insert(found->second);
      records.erase(found);
    };
    if (item.staged) keep(item.key);
    for (int64_t block = 0; block < item.infer_units; ++block) {
      keep(UnitKey(item.key, numerics_key, block));
    }
  }
  for (const auto& [key, file] : records) judged.forgotten_keys.push_back(key);
  return judged;
}

std::set<std::filesystem::path> OutputFolders(const Plan& plan) {
  std::set<std::filesystem::path> folders;
  std::string_view last;
  for (const Item& item : plan.items) {
    const size_t slash = item.output.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string_view folder(item.output.data(), slash == 0 ? 1 : slash);
    // Outputs of one folder mostly follow each other.
    if (folder == last) continue;
    last = folder;
    folders.insert(std::filesystem::path(folder));
  }
  return folders;
}

}  // namespace

std::optional<ScratchName> ParseScratchName(const std::string& name) {
  const std::vector<std::string> f = Fields(name);
  if (f.size() < 3 || !IsKey(f[0])) return std::nullopt;
  const auto epoch = WholeNumber(f[1]);
  const std::string& kind = f.back();
  const bool attempt = f.size() == 4 && WholeNumber(f[2]) && (kind == "brick" || kind == "stage");
  const bool list = f.size() == 3 && kind == "list";
  if (!epoch || (!attempt && !list)) return std::nullopt;
  return ScratchName{f[0], kind, *epoch};
}

void SweepDead(const Plan& plan, const std::string& numerics_key, const std::string& scratch,
               Ledger& ledger, bool finished) {
  const int64_t epoch = ledger.epoch();
  const auto dead = [&](int64_t of) {
    return of >= 0 && (of < epoch || (finished && of == epoch));
  };

  // Records first: a file may go only when nothing names it any more.
  const Recorded recorded = JudgeRecords(plan, numerics_key, ledger);
  for (const std::string& key : recorded.forgotten_keys) ledger.ForgetBrick(key);
  ledger.Commit();

  std::error_code failed;
  std::vector<std::filesystem::path> remove;
  for (std::filesystem::directory_iterator entry(scratch, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    const auto parsed = ParseScratchName(name);
    if (parsed && dead(parsed->epoch) && !recorded.kept_files.contains(name))
      remove.push_back(entry->path());
  }
  for (const auto& path : remove) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }

  auto folders = OutputFolders(plan);
  if (!scratch.empty()) folders.insert(scratch);
  for (const auto& folder : folders) {
    // Of any epoch: in a work folder that was removed and made anew they begin again.
    SweepTemporaries(folder, [&](const std::string& attempt) {
      return IsAttemptOf(ledger.work().native(), attempt);
    });
  }
  // Small files are written by whoever holds the lock of the work folder, which is this process.
  std::string own = "-";
  own += std::to_string(getpid()) + "-";
  SweepTemporaries(ledger.work(), [&](const std::string& attempt) {
    return attempt.starts_with("small-") && attempt.find(own) == std::string::npos;
  });
}

}  // namespace tilery
