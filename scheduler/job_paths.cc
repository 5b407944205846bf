#include "scheduler/job_paths.h"

#include <cstdlib>

#include "io/error.h"
#include "scheduler/output_paths.h"

namespace tilery {
namespace fs = std::filesystem;

std::string ExpandPath(const JobValue& value, const JobKey& key, const std::string& text,
                       const fs::path& base) {
  if (text.empty()) RefuseValue(value, key.key, "an empty path");
  if (text.find('\0') != text.npos) RefuseValue(value, key.key, "a path with a zero byte");
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
    out += found;
    i = end;
  }
  if (out == "~" || out.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home == nullptr) RefuseValue(value, key.key, "'" + Shown(value) + "': HOME is not set");
    out = home + out.substr(1);
  }
  return (base / out).lexically_normal().string();
}

std::string FolderOfTemplate(const std::string& output_template) {
  const size_t field = output_template.find('{');
  const size_t slash = output_template.rfind('/', field);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : output_template.substr(0, slash);
}

void CheckTemplate(const std::string& output_template) {
  ExpandFields(output_template, [](const std::string&) { return std::string("x"); });
}

}  // namespace tilery
