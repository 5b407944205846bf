// What Linux says of a machine in small files of one line (/sys).
#pragma once

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace tilery {

// "" if it can't be read.
inline std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of decimal digits alone, from 0.
inline std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

}  // namespace tilery
