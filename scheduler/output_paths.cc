#include "scheduler/output_paths.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "io/error.h"
#include "scheduler/glob.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

struct StampHash {
  size_t operator()(const FileStamp& s) const {
    return s.inode * 0x9E3779B97F4A7C15ULL ^ static_cast<uint64_t>(s.mtime_ns) ^
           static_cast<uint64_t>(s.size) << 17;
  }
};

bool IsBelow(const std::string& path, const std::string& folder) {
  if (folder == "/") return path.starts_with('/');
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// The template with the frame of this input in place of its last run of #, if a pattern says what
// an input's frame is.
std::string WithFrame(const std::string& output_template, const std::vector<std::string>& patterns,
                      const std::string& input) {
  const size_t last = output_template.rfind('#');
  const size_t slash = output_template.rfind('/');
  if (last == std::string::npos || (slash != std::string::npos && last < slash))
    return output_template;
  size_t first = last;
  while (first > 0 && output_template[first - 1] == '#') --first;
  for (const std::string& pattern : patterns) {
    const auto frame =
        FrameIn(fs::path(pattern).filename().string(), fs::path(input).filename().string());
    if (!frame) continue;
    const size_t digits = std::min(frame->find_first_not_of('0'), frame->size() - 1);
    std::string number = frame->substr(digits);
    const size_t width = last + 1 - first;
    if (number.size() < width) number.insert(0, width - number.size(), '0');
    return output_template.substr(0, first) + number + output_template.substr(last + 1);
  }
  return output_template;
}

}  // namespace

std::string ExpandFields(const std::string& output_template,
                         const std::function<std::string(const std::string&)>& value_of) {
  static const std::vector<std::string> kFields = {"stem", "name", "ext", "reldir", "index"};
  std::string out;
  const std::string shown = Printable(output_template);
  for (size_t i = 0; i < output_template.size(); ++i) {
    const char c = output_template[i];
    if ((c == '{' || c == '}') && i + 1 < output_template.size() && output_template[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    if (c == '}') {
      throw Error(Fault::kUsage, "output.path '" + shown + "': } without {; a brace is written }}");
    }
    if (c != '{') {
      out += c;
      continue;
    }
    const size_t end = output_template.find('}', i);
    if (end == std::string::npos) {
      throw Error(Fault::kUsage, "output.path '" + shown + "': { without }; a brace is written {{");
    }
    const std::string field = output_template.substr(i + 1, end - i - 1);
    if (field == "t" || field == "c" || field == "grid") {
      throw Error(Fault::kUsage,
                  "output.path '" + shown + "': {" + field + "} is not supported yet");
    }
    if (std::find(kFields.begin(), kFields.end(), field) == kFields.end()) {
      const std::string near = NearestWord(field, kFields);
      throw Error(Fault::kUsage,
                  "output.path '" + shown + "': unknown field {" + Printable(field, 60) + "}; " +
                      (near.empty() ? "" : "the nearest is {" + near + "}; ") +
                      "allowed: {stem} {name} {ext} {reldir} {index}, and {{ }} for braces");
    }
    out += value_of(field);
    i = end;
  }
  return out;
}

std::pair<std::string, std::string> SplitExtension(const std::string& file_name) {
  size_t dot = file_name.rfind('.');
  if (dot == std::string::npos || dot == 0) return {file_name, ""};
  // A compressed volume has two: the longer one counts if it is known as a whole.
  const size_t before = file_name.rfind('.', dot - 1);
  if (before != std::string::npos && before != 0 &&
      FormatOfExtension("x" + file_name.substr(dot)).empty() &&
      !FormatOfExtension("x" + file_name.substr(before)).empty()) {
    dot = before;
  }
  return {file_name.substr(0, dot), file_name.substr(dot)};
}

std::string ExpandOutput(const std::string& output_template, const std::string& input,
                         const std::string& root, int64_t index, const std::string& extension) {
  const fs::path path(input);
  const std::string name = path.filename().string();
  const auto [stem, own] = SplitExtension(name);
  const std::string& shown_extension = extension.empty() ? own : extension;
  const std::string whole =
      output_template.ends_with('/') ? output_template + "{reldir}/{stem}{ext}" : output_template;
  const std::string expanded = ExpandFields(whole, [&, stem = stem](const std::string& field) {
    if (field == "stem") return stem;
    if (field == "name") return name;
    if (field == "ext") return shown_extension;
    if (field == "index") return std::to_string(index);
    const std::string folder = path.parent_path().string();
    return IsBelow(folder, root) ? folder.substr(root == "/" ? 1 : root.size() + 1) : std::string();
  });
  return fs::path(expanded).lexically_normal().string();
}

std::vector<std::string> ExpandOutputs(const Job& job, const std::vector<std::string>& inputs) {
  std::vector<std::string> roots;
  for (const std::string& pattern : job.input.paths) roots.push_back(PatternRoot(pattern));
  // The longest root wins, so that reldir is the shortest that still tells inputs apart.
  std::sort(roots.begin(), roots.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  std::vector<std::string> outputs;
  outputs.reserve(inputs.size());
  const std::string& output_template = job.outputs.at(0).path;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const auto root = std::find_if(roots.begin(), roots.end(), [&](const std::string& candidate) {
      return IsBelow(inputs[k], candidate);
    });
    outputs.push_back(
        ExpandOutput(WithFrame(output_template, job.input.paths, inputs[k]), inputs[k],
                     root == roots.end() ? fs::path(inputs[k]).parent_path().string() : *root,
                     static_cast<int64_t>(k), ""));
  }
  return outputs;
}

void CheckOutputsAreNoInputs(const std::vector<InputHeader>& inputs,
                             const std::vector<std::string>& outputs) {
  std::unordered_set<FileStamp, StampHash> stamps;
  stamps.reserve(inputs.size());
  for (const InputHeader& input : inputs) stamps.insert(input.stamp);
  for (const std::string& output : outputs) {
    std::optional<FileStamp> stamp;
    try {
      stamp = StampOf(output);
    } catch (const Error&) {
      continue;  // what can't be looked at is judged when it is written
    }
    if (!stamp || stamp->inode == 0 || stamps.find(*stamp) == stamps.end()) continue;
    std::string input = output;
    for (const InputHeader& candidate : inputs) {
      if (candidate.stamp == *stamp) input = candidate.path;
    }
    throw Error(Fault::kUsage, "output " + Printable(output) + " is the same file as the input " +
                                   Printable(input) + "; choose another output.path");
  }
}

}  // namespace tilery
