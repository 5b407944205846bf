// Help text and JSON schema, both made from the table of keys.
#include <nlohmann/json.hpp>

#include "scheduler/job_keys.h"

namespace tilery {
namespace {

using Json = nlohmann::ordered_json;

Json WordsOf(const JobKey& key) {
  Json words = Json::array();
  for (const std::string& word : SplitWords(key.words)) {
    words.push_back(word);
    // YAML reads 2 and 3 as numbers.
    if (word.find_first_not_of("0123456789") == word.npos) words.push_back(std::stoll(word));
  }
  return words;
}

Json OneOrList(const Json& one) {
  return {{"anyOf", Json::array({one, {{"type", "array"}, {"items", one}, {"minItems", 1}}})}};
}

Json PostSchema() {
  const Json number = {{"type", "number"}};
  const auto step = [](const char* name, const Json& argument) {
    return Json{{"type", "object"},
                {"properties", {{name, argument}}},
                {"required", Json::array({name})},
                {"additionalProperties", false}};
  };
  Json steps = Json::array();
  steps.push_back({{"enum", Json::array({"clamp", "sigmoid", "softmax", "argmax"})}});
  steps.push_back(step("threshold", number));
  steps.push_back(
      step("scale", {{"type", "array"}, {"items", number}, {"minItems", 2}, {"maxItems", 2}}));
  steps.push_back(step("labels", {{"type", "array"}, {"items", number}, {"minItems", 1}}));
  const Json one = {{"anyOf", steps}};
  return {{"anyOf", Json::array({one, {{"type", "array"}, {"items", one}}})}};
}

// The schema of the values of one type, without words.
Json TypeSchema(const JobKey& key) {
  const Json text = {{"type", "string"}, {"minLength", 1}};
  const Json integer = {{"type", "integer"}, {"minimum", key.least}};
  switch (key.type) {
    case KeyType::kWord:
      return {{"enum", WordsOf(key)}};
    case KeyType::kText:
    case KeyType::kPath:
    case KeyType::kTemplate:
      return text;
    case KeyType::kTexts:
    case KeyType::kPaths:
      return OneOrList(text);
    case KeyType::kInteger:
      return integer;
    case KeyType::kIntegers:
      return OneOrList(integer);
    case KeyType::kNumber:
      return {{"type", "number"}};
    case KeyType::kNumbers:
      return OneOrList({{"type", "number"}});
    case KeyType::kRange:
      return {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
    case KeyType::kScale: {
      Json one = {
          {"anyOf",
           Json::array({integer, {{"type", "string"}, {"pattern", "^[0-9]+(/[0-9]+)?$"}}})}};
      return OneOrList(one);
    }
    case KeyType::kMemory:
      return {
          {"anyOf",
           Json::array({integer, {{"type", "string"}, {"pattern", "^[0-9.]+ *([KMGT]iB)?$"}}})}};
    case KeyType::kExtent: {
      Json one = Json::array({integer});
      if (std::string_view(key.key) == "tiling.overlap") {
        one.push_back({{"type", "string"}, {"pattern", "^[0-9.]+%$"}});
      }
      return OneOrList({{"anyOf", one}});
    }
    case KeyType::kShare:
      return {{"anyOf", Json::array({{{"type", "integer"}, {"minimum", 0}},
                                     {{"type", "string"}, {"pattern", "^[0-9.]+%$"}}})}};
    case KeyType::kBound:
      return {{"anyOf", Json::array({{{"type", "number"}, {"minimum", 0}}, text})}};
    case KeyType::kPost:
      return PostSchema();
    case KeyType::kList:
      return {{"type", "array"}};
  }
  return Json::object();
}

Json KeySchema(const JobKey& key) {
  Json schema = TypeSchema(key);
  const bool own_words =
      key.type == KeyType::kWord || key.type == KeyType::kTexts || key.type == KeyType::kPost;
  if (key.words[0] != '\0' && !own_words) {
    schema = {{"anyOf", Json::array({{{"enum", WordsOf(key)}}, schema})}};
  }
  Json out = {{"description", key.help}};
  if (key.standard[0] != '\0')
    out["description"] = std::string(key.help) + " (default: " + key.standard + ")";
  for (const auto& [name, value] : schema.items()) out[name] = value;
  return out;
}

void Insert(Json& object, const std::string& path, const Json& schema) {
  if (!object.contains("type")) {
    object["type"] = "object";
    object["properties"] = Json::object();
    object["additionalProperties"] = false;
  }
  const size_t dot = path.find('.');
  if (dot == path.npos) {
    object["properties"][path] = schema;
    return;
  }
  Insert(object["properties"][path.substr(0, dot)], path.substr(dot + 1), schema);
}

std::string Joined(const char* words) {
  std::string out;
  for (const std::string& word : SplitWords(words)) out += (out.empty() ? "" : " | ") + word;
  return out;
}

const char* TypeHelp(const JobKey& key) {
  switch (key.type) {
    case KeyType::kPath:
    case KeyType::kTemplate:
      return "PATH";
    case KeyType::kPaths:
      return "PATH ...";
    case KeyType::kText:
      return "TEXT";
    case KeyType::kInteger:
      return "N";
    case KeyType::kIntegers:
    case KeyType::kExtent:
      return "N [N ...]";
    case KeyType::kNumber:
      return "X";
    case KeyType::kNumbers:
      return "X [X ...]";
    case KeyType::kRange:
      return "LOW HIGH";
    case KeyType::kScale:
      return "N or P/Q";
    case KeyType::kMemory:
      return "BYTES, KiB, MiB, GiB";
    case KeyType::kShare:
      return "N or N%";
    case KeyType::kBound:
      return "BOUND";
    case KeyType::kPost:
      return "STEP ...";
    case KeyType::kWord:
    case KeyType::kTexts:
    case KeyType::kList:
      return "";
  }
  return "";
}

}  // namespace

std::string JobSchemaText() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "A Tilery job"}};
  Json job = Json::object();
  Json output = Json::object();
  for (const JobKey& key : JobKeys()) {
    if (IsLater(key) || key.type == KeyType::kList) continue;
    const std::string name(key.key);
    Insert(job, name, KeySchema(key));
    if (name.starts_with("output.")) Insert(output, name.substr(7), KeySchema(key));
  }
  job["properties"]["outputs"] = {{"description", "instead of output: a list with one output"},
                                  {"type", "array"},
                                  {"items", output},
                                  {"minItems", 1},
                                  {"maxItems", 1}};
  const Json several = {{"type", "array"}, {"items", {{"$ref", "#"}}}, {"minItems", 1}};
  for (const char* list : {"stages", "jobs"}) {
    Json described = {{"description", FindJobKey(list)->help}};
    for (const auto& [name, value] : several.items()) described[name] = value;
    job["properties"][list] = described;
  }
  for (const auto& [name, value] : job.items()) schema[name] = value;
  return schema.dump(2) + "\n";
}

std::string JobKeysHelp() {
  std::string out;
  std::string later;
  for (const JobKey& key : JobKeys()) {
    if (key.type == KeyType::kList && !IsLater(key)) continue;
    if (IsLater(key)) {
      later += (later.empty() ? "" : ", ") + std::string(key.key);
      continue;
    }
    std::string line = "  --" + std::string(key.key);
    if (key.flag[0] != '\0') line += ", --" + std::string(key.flag);
    std::string values = Joined(key.words);
    const std::string type = TypeHelp(key);
    if (!type.empty()) values += (values.empty() ? "" : " | ") + type;
    line += "  " + values + "\n      " + key.help;
    if (key.standard[0] != '\0') line += " (default: " + std::string(key.standard) + ")";
    if (key.later[0] != '\0') line += "; not supported yet: " + Joined(key.later);
    out += line + "\n";
  }
  return out + "  Not supported yet: " + later + "\n";
}

}  // namespace tilery
