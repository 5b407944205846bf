#include "scheduler/attempt_name.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "io/file.h"

namespace tilery {
namespace {

constexpr size_t kTagDigits = 12;

}  // namespace

std::string WorkTag(const std::string& work) {
  std::filesystem::path path = std::filesystem::path(work).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "/out/w/"
  return HashText(path.native()).substr(0, kTagDigits);
}

std::string AttemptName(const std::string& work, int64_t unit, int64_t epoch, int64_t attempt) {
  return WorkTag(work) + "." + std::to_string(unit) + "." + std::to_string(epoch) + "." +
         std::to_string(attempt);
}

bool IsAttemptOf(const std::string& work, const std::string& attempt) {
  const std::string tag = WorkTag(work) + ".";
  if (!attempt.starts_with(tag)) return false;
  const std::string_view numbers = std::string_view(attempt).substr(tag.size());
  return std::count(numbers.begin(), numbers.end(), '.') == 2 &&
         numbers.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace tilery
