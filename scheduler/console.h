// What a run says: standard error for people, WORK/log.jsonl for everything.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "scheduler/coordinator.h"

namespace tilery {

// Thread-safe. On a terminal progress is one line that is rewritten; elsewhere there are no colours
// and no cursor movements, a progress line at most every 5 s, and 64 KiB in all, of which progress
// leaves the last 24 KiB to what comes at the end.
class Console {
 public:
  enum class Level { kInfo, kWarning, kError };
  Console();
  ~Console();
  // From here on everything also goes to `work`/log.jsonl, rotated at 16 MiB. Error(kOutput).
  void OpenLog(const std::filesystem::path& work);
  void Say(Level level, const std::string& text);
  void Log(Level level, const std::string& text);  // log.jsonl only
  void Show(const Progress& progress);
  void CountIn(const std::string& things) { things_ = things; }  // of progress, instead of tiles
  void Finish();  // leaves the last progress line standing

 private:
  void Print(const std::string& line);

  struct LogFile;
  std::mutex mutex_;  // guards all below
  std::unique_ptr<LogFile> log_;
  const bool terminal_;
  std::string things_ = "tiles";
  bool line_open_ = false;
  int64_t budget_ = 64 << 10;
  std::string last_progress_;
  std::chrono::steady_clock::time_point last_shown_{};
};

std::string BytesInWords(int64_t bytes);  // "12.3 MiB"

// "12/60 tiles, 3.4 tiles/s, about 14 s left"
std::string ProgressLine(const Progress& progress, const std::string& things = "tiles");

}  // namespace tilery
