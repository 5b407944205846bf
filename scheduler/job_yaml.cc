// Job files and flags as untyped values. The only file that knows yaml-cpp.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/error.h"
#include "scheduler/job_value.h"

namespace tilery {
namespace {

constexpr int kDeepest = 32;
constexpr int64_t kMostNodes = 4'000'000;  // aliases can make a small file huge

struct Converter {
  const std::string& name;
  int64_t nodes = 0;

  std::string At(const YAML::Node& node) const {
    return node.Mark().is_null() ? name : name + ":" + std::to_string(node.Mark().line + 1);
  }

  JobValue Convert(const YAML::Node& node, int depth) {
    JobValue value;
    value.where = At(node);
    if (depth > kDeepest || ++nodes > kMostNodes) {
      throw Error(Fault::kUsage, value.where + ": nested deeper than " + std::to_string(kDeepest) +
                                     " levels or more than " + std::to_string(kMostNodes) +
                                     " values");
    }
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        break;
      case YAML::NodeType::Scalar:
        value.kind = JobValue::Kind::kScalar;
        value.text = node.Scalar();
        break;
      case YAML::NodeType::Sequence:
        value.kind = JobValue::Kind::kList;
        for (const YAML::Node& item : node) value.items.push_back(Convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        value.kind = JobValue::Kind::kMap;
        for (const auto& entry : node) {
          if (!entry.first.IsScalar()) {
            throw Error(Fault::kUsage, At(entry.first) + ": a key must be a plain word");
          }
          const std::string& key = entry.first.Scalar();
          for (const auto& known : value.entries) {
            if (known.first == key) {
              throw Error(Fault::kUsage, At(entry.first) + ": the key '" + Printable(key, 80) +
                                             "' is given twice (first at " + known.second.where +
                                             ")");
            }
          }
          value.entries.emplace_back(key, Convert(entry.second, depth + 1));
          value.entries.back().second.where = At(entry.first);
        }
        break;
    }
    return value;
  }
};

// Takes no notice of what it is told.
struct Deaf : YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll would answer the same, but it never comes back from text that begins with a comma.
bool HoldsMoreThanOneDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Deaf deaf;
  return parser.HandleNextDocument(deaf) && parser.HandleNextDocument(deaf);
}

// JSON is YAML but for details: tabs in front of lines, surrogate pairs in escapes. Such a file is
// written anew on one line, which loses nothing but line numbers. "" if it is no JSON.
std::string JsonOnOneLine(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? ""
                             : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

JobValue ParseText(const std::string& text, const std::string& name, bool may_be_json) {
  try {
    if (HoldsMoreThanOneDocument(text)) {
      throw Error(
          Fault::kUsage,
          name +
              ": holds more than one YAML document (or begins with a stray comma); one job a file");
    }
    return Converter{name}.Convert(YAML::Load(text), 0);
  } catch (const YAML::Exception& error) {
    const std::string json = may_be_json ? JsonOnOneLine(text) : "";
    if (!json.empty()) return ParseText(json, name, false);
    const std::string line = error.mark.is_null() ? "" : ":" + std::to_string(error.mark.line + 1);
    throw Error(Fault::kUsage, name + line + ": no valid YAML: " + Printable(error.msg));
  }
}

}  // namespace

JobValue ParseYaml(const std::string& text, const std::string& name) {
  return ParseText(text, name, true);
}

JobValue ParseYamlFile(const std::filesystem::path& path) {
  const std::string shown = Printable(path.string());
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw Error(Fault::kUsage, shown + ": there is no such job file");
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    throw Error(Fault::kUsage, shown + ": a job must be a file (YAML or JSON)");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf() || stream.peek() == EOF)) {
    throw Error(Fault::kUsage, shown + ": can't be read");
  }
  return ParseYaml(text.str(), shown);
}

JobValue FlagValue(const JobKey& key, const std::vector<std::string>& values) {
  const std::string where = "command line, --" + std::string(key.key);
  const auto scalar = [&](const std::string& text) {
    JobValue value;
    value.kind = JobValue::Kind::kScalar;
    value.text = text;
    value.where = where;
    return value;
  };
  if (values.empty()) throw Error(Fault::kUsage, where + ": a value is missing");
  // Names of files are taken as they are, whatever they look like.
  const bool literal = key.type == KeyType::kText || key.type == KeyType::kBound ||
                       key.type == KeyType::kPath || key.type == KeyType::kPaths ||
                       key.type == KeyType::kTemplate;
  const auto parse = [&](std::string text) {
    if (literal) return scalar(text);
    text.erase(0, text.find_first_not_of(' '));
    if (text.empty() || (text[0] != '[' && text[0] != '{')) return scalar(text);
    JobValue value = ParseYaml(text, where);
    value.where = where;
    return value;
  };
  if (key.type == KeyType::kPost) {
    // One list, however it was cut into words: sigmoid {threshold: 0.5}, or [sigmoid, {scale: [2,
    // 0]}].
    std::string steps;
    for (const std::string& value : values) steps += (steps.empty() ? "" : ", ") + value;
    JobValue list = ParseYaml("[" + steps + "]", where);
    list.where = where;
    return list;
  }
  if (values.size() == 1) {
    const std::string& text = values[0];
    if (!literal && TakesManyValues(key) && text.find(',') != text.npos && text[0] != '[') {
      return parse("[" + text + "]");  // --tiling.tile 8,32,48
    }
    return parse(text);
  }
  if (!TakesManyValues(key)) {
    throw Error(Fault::kUsage, where + ": takes one value, " + std::to_string(values.size()) +
                                   " were given (" + Printable(values[0], 60) + ", " +
                                   Printable(values[1], 60) + ")");
  }
  JobValue list;
  list.kind = JobValue::Kind::kList;
  list.where = where;
  for (const std::string& text : values) list.items.push_back(parse(text));
  return list;
}

}  // namespace tilery
