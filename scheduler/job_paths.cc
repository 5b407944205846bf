#include "scheduler/job_paths.h"

#include <cstdlib>
#include <filesystem>

#include "io/error.h"
#include "scheduler/output_paths.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

// A brace in the name of a folder is no field of a template.
std::string BracesDoubled(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '{' || c == '}' ? std::string(2, c) : std::string(1, c);
  return out;
}

}  // namespace

std::string ExpandPath(const JobValue& value, const JobKey& key, const std::string& text,
                       const fs::path& base) {
  if (text.empty()) RefuseValue(value, key.key, "an empty path");
  if (text.find('\0') != text.npos) RefuseValue(value, key.key, "a path with a zero byte");
  const auto literal = [&key](const std::string& part) {
    return key.type == KeyType::kTemplate ? BracesDoubled(part) : part;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "${") != 0) {
      out += text[i];
      continue;
    }
    const size_t end = text.find('}', i);
    if (end == text.npos) RefuseValue(value, key.key, "'" + Shown(value) + "': ${ without }");
    const std::string name = text.substr(i + 2, end - i - 2);
    const char* found = std::getenv(name.c_str());
    if (found == nullptr) {
      RefuseValue(value, key.key,
                  "'" + Shown(value) + "': the environment variable '" + Printable(name, 60) +
                      "' is not set");
    }
    out += literal(found);
    i = end;
  }
  if (out == "~" || out.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home == nullptr) RefuseValue(value, key.key, "'" + Shown(value) + "': HOME is not set");
    out = literal(home) + out.substr(1);
  }
  return (fs::path(literal(base.string())) / out).lexically_normal().string();
}

std::string FolderOfTemplate(const std::string& output_template) {
  std::string before;  // the first field, as a path
  for (size_t i = 0; i < output_template.size(); ++i) {
    const char c = output_template[i];
    const bool brace = c == '{' || c == '}';
    if (brace && i + 1 < output_template.size() && output_template[i + 1] == c) {
      ++i;
    } else if (brace) {
      break;
    }
    before += c;
  }
  const size_t slash = before.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : before.substr(0, slash);
}

bool IsFolder(const std::string& output_template) {
  const std::string path =
      ExpandFields(output_template, [](const std::string& field) { return "{" + field + "}"; });
  std::error_code error;
  return fs::is_directory(path, error);
}

void CheckTemplate(const std::string& output_template) {
  ExpandFields(output_template, [](const std::string&) { return std::string("x"); });
}

}  // namespace tilery
