#include "scheduler/glob.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "io/error.h"

namespace tilery {
namespace {

enum class Entry { kNone, kFile, kFolder, kLinkedFolder };

// What lies at `path`. A dangling link is a file: opening it fails, by name.
Entry EntryAt(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Entry::kNone;
  if (S_ISDIR(info.st_mode)) return Entry::kFolder;
  if (!S_ISLNK(info.st_mode)) return Entry::kFile;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) ? Entry::kLinkedFolder
                                                                 : Entry::kFile;
}

std::string Below(const std::string& folder, const std::string& name) {
  return folder == "/" ? "/" + name : folder + "/" + name;
}

std::vector<std::string> Components(const std::string& path) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) out.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

struct Walker {
  const std::vector<std::string>& parts;
  const std::function<bool(const std::string&)>& enter;
  const std::function<void(const std::string&)>& found;

  // Most file systems tell the kind with the name, which saves a stat for each of 100,000 files.
  template <typename Visit>
  void EachEntry(const std::string& folder, Visit visit) const {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), &closedir);
    if (!dir) {
      throw Error(Fault::kUsage, Errno("list the folder " + Printable(folder), errno));
    }
    while (const dirent* entry = readdir(dir.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string path = Below(folder, name);
      const Entry kind = entry->d_type == DT_REG   ? Entry::kFile
                         : entry->d_type == DT_DIR ? Entry::kFolder
                                                   : EntryAt(path);
      if (kind != Entry::kNone) visit(name, path, kind);
    }
  }

  void Walk(const std::string& folder, size_t at) const {
    const bool last = at + 1 == parts.size();
    const std::string& part = parts[at];
    if (part == "**") {
      if (!last) Walk(folder, at + 1);
      EachEntry(folder, [&](const std::string& name, const std::string& path, Entry kind) {
        if (name[0] == '.') return;
        if (kind == Entry::kFolder && enter(path)) Walk(path, at);
        if (last && kind == Entry::kFile) found(path);
      });
      return;
    }
    const std::string literal = Below(folder, part);
    const Entry kind = EntryAt(literal);
    if (kind != Entry::kNone || !HasWildcards(part)) {
      Take(literal, kind, at, last);
      return;
    }
    EachEntry(folder, [&](const std::string& name, const std::string& path, Entry entry) {
      if (MatchesName(part, name)) Take(path, entry, at, last);
    });
  }

  void Take(const std::string& path, Entry kind, size_t at, bool last) const {
    if (last && kind == Entry::kFile) found(path);
    const bool folder = kind == Entry::kFolder || kind == Entry::kLinkedFolder;
    if (!last && folder && enter(path)) Walk(path, at + 1);
  }
};

// Without # in the pattern; a dot in front is like any other sign.
bool MatchesRest(const std::string& pattern, const std::string& name) {
  // One position to fall back to is enough, since a later * can do all that an earlier one can.
  size_t p = 0, n = 0, star = std::string::npos, star_n = 0;
  while (n < name.size()) {
    bool matched = false;
    size_t next = p + 1;
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        star_n = n;
        continue;
      }
      const size_t close = pattern[p] == '[' ? pattern.find(']', p + 2) : std::string::npos;
      if (close != std::string::npos) {
        size_t q = p + 1;
        const bool negated = pattern[q] == '!' || pattern[q] == '^';
        if (negated) ++q;
        bool inside = false;
        for (; q < close; ++q) {
          if (q + 2 < close && pattern[q + 1] == '-') {
            inside = inside || (pattern[q] <= name[n] && name[n] <= pattern[q + 2]);
            q += 2;
          } else {
            inside = inside || pattern[q] == name[n];
          }
        }
        matched = inside != negated;
        next = close + 1;
      } else {
        matched = pattern[p] == '?' || pattern[p] == name[n];
      }
    }
    if (matched) {
      p = next;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++star_n;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool HasWildcards(const std::string& component) {
  return component.find_first_of("*?[#") != std::string::npos;
}

std::optional<std::string> FrameIn(const std::string& pattern, const std::string& name) {
  const size_t last = pattern.rfind('#');
  if (last == std::string::npos || name.empty()) return std::nullopt;
  const size_t before = pattern.find_last_not_of('#', last);
  const size_t first = before == std::string::npos ? 0 : before + 1;
  const size_t width = last + 1 - first;
  const std::string prefix = pattern.substr(0, first), suffix = pattern.substr(last + 1);
  const auto digit = [&](size_t at) {
    return at < name.size() && name[at] >= '0' && name[at] <= '9';
  };
  for (size_t begin = 0; begin < name.size(); ++begin) {
    size_t end = begin;
    while (digit(end)) ++end;
    const size_t digits = end - begin;
    if (digits < width || (digits > width && name[begin] == '0')) continue;
    if (MatchesName(prefix, name.substr(0, begin)) && MatchesRest(suffix, name.substr(end)))
      return name.substr(begin, digits);
  }
  return std::nullopt;
}

bool MatchesName(const std::string& pattern, const std::string& name) {
  if (name[0] == '.' && pattern[0] != '.') return false;
  if (pattern.find('#') != std::string::npos) return FrameIn(pattern, name).has_value();
  return MatchesRest(pattern, name);
}

void WalkGlob(const std::string& pattern, const std::function<bool(const std::string&)>& enter,
              const std::function<void(const std::string& path)>& found) {
  const std::vector<std::string> parts = Components(pattern);
  if (!parts.empty()) Walker{parts, enter, found}.Walk("/", 0);
}

std::string PatternRoot(const std::string& pattern) {
  std::string folder = "/";
  for (const std::string& part : Components(pattern)) {
    const std::string path = Below(folder, part);
    const Entry kind = EntryAt(path);
    if (kind != Entry::kFolder && kind != Entry::kLinkedFolder) return folder;
    folder = path;
  }
  return folder;
}

}  // namespace tilery
