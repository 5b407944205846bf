#include "scheduler/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "io/error.h"

namespace tilery {

struct Console::LogFile {
  std::shared_ptr<spdlog::logger> logger;
};

namespace {

constexpr int64_t kLastWords = 24 << 10;

const char* Name(Console::Level level) {
  switch (level) {
    case Console::Level::kInfo:
      return "info";
    case Console::Level::kWarning:
      return "warning";
    case Console::Level::kError:
      return "error";
  }
  return "?";
}

std::string Duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

std::string BytesInWords(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int k = 0;
  for (; value >= 1024 && k < 4; ++k) value /= 1024;
  return k == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[k]);
}

std::string ProgressLine(const Progress& progress, const std::string& things) {
  std::string line = fmt::format("{}/{} {}", progress.tiles_done, progress.tiles, things);
  if (progress.failed > 0) line += fmt::format(", {} units failed", progress.failed);
  if (!progress.workers.empty()) line += fmt::format(", {} workers", progress.workers.size());
  if (progress.state == "draining")
    line += ", draining";
  else if (progress.eta_s >= 0 && progress.tiles_done < progress.tiles)
    line += ", about " + Duration(progress.eta_s) + " left";
  return line;
}

Console::Console() : terminal_(isatty(STDERR_FILENO) == 1) {}
Console::~Console() { Finish(); }

void Console::OpenLog(const std::filesystem::path& work) {
  std::lock_guard lock(mutex_);
  // The library below says why it can't in words only.
  const std::filesystem::path file = work / "log.jsonl";
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw Error(Fault::kOutput, Errno("open " + Printable(file.string()), errno));
  close(fd);
  try {
    auto sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file.string(), 16 << 20, 1);
    sink->set_pattern(R"({"time": "%Y-%m-%dT%H:%M:%S.%e%z", %v})");
    log_ = std::make_unique<LogFile>();
    log_->logger = std::make_shared<spdlog::logger>("tilery", sink);
    log_->logger->flush_on(spdlog::level::info);
    // A full disk must not end a run through its log.
    log_->logger->set_error_handler([](const std::string&) {});
  } catch (const spdlog::spdlog_ex& e) {
    throw Error(Fault::kOutput, std::string("log.jsonl: ") + e.what());
  }
}

void Console::Log(Level level, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (!log_) return;
  log_->logger->info("\"level\": \"{}\", \"message\": {}", Name(level),
                     Json(Printable(text, 8000)).dump());
}

void Console::Say(Level level, const std::string& text) {
  Log(level, text);
  std::lock_guard lock(mutex_);
  Print(level == Level::kInfo ? text : fmt::format("{}: {}", Name(level), text));
}

void Console::Print(const std::string& line) {
  if (line_open_) fputs("\r\x1b[K", stderr);
  line_open_ = false;
  const int64_t bytes = static_cast<int64_t>(line.size()) + 1;
  if (!terminal_) {
    if (budget_ <= 0) return;
    budget_ -= bytes;
    if (budget_ <= 0) {
      fputs("(more is in log.jsonl in the work folder)\n", stderr);
      return;
    }
  }
  fputs(line.c_str(), stderr);
  fputc('\n', stderr);
  if (terminal_ && !last_progress_.empty()) {
    fputs(last_progress_.c_str(), stderr);
    line_open_ = true;
  }
  fflush(stderr);
}

void Console::Show(const Progress& progress) {
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const std::string line = ProgressLine(progress, things_);
  if (terminal_) {
    if (line_open_) fputs("\r\x1b[K", stderr);
    fputs(line.c_str(), stderr);
    fflush(stderr);
    line_open_ = true;
    last_progress_ = line;
    return;
  }
  const bool last = progress.state != "running" && progress.state != "draining";
  if (!last && now - last_shown_ < std::chrono::seconds(5)) return;
  // A long run must not spend on its progress what its last words need.
  if (!last && budget_ < kLastWords) return;
  last_shown_ = now;
  Print(line);
}

void Console::Finish() {
  std::lock_guard lock(mutex_);
  if (line_open_) fputc('\n', stderr);
  line_open_ = false;
  last_progress_.clear();
}

}  // namespace tilery
