#include "scheduler/contract.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "scheduler/model_file.h"

namespace tilery {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "model.";
// Keys of a tilery.json that describe the file to people and decide nothing.
const char* const kNotes[] = {"name",    "description", "version",  "license",
                              "licence", "author",      "homepage", "notes"};

JobValue FromJson(const Json& json, const std::string& where) {
  JobValue value;
  value.where = where;
  if (json.is_null()) return value;
  if (json.is_object()) {
    value.kind = JobValue::Kind::kMap;
    for (const auto& [name, child] : json.items()) {
      value.entries.emplace_back(name, FromJson(child, where));
    }
  } else if (json.is_array()) {
    value.kind = JobValue::Kind::kList;
    for (const Json& item : json) value.items.push_back(FromJson(item, where));
  } else {
    value.kind = JobValue::Kind::kScalar;
    value.text = json.is_string() ? json.get<std::string>() : json.dump();
  }
  return value;
}

// Takes the first of several contracts that says something, and where it comes from.
struct Merger {
  Contract& out;
  const Contract* layers[3];

  template <typename T>
  void Take(std::optional<T> Contract::*field, const std::string& key) {
    for (const Contract* layer : layers) {
      if (!(layer->*field)) continue;
      out.*field = layer->*field;
      const auto source = layer->source.find(key);
      static const char* const kNames[] = {"job", "file", "probed"};
      out.source[key] = source != layer->source.end() ? source->second
                                                      : kNames[layer == layers[0]   ? 0
                                                               : layer == layers[1] ? 1
                                                                                    : 2];
      return;
    }
  }
  template <typename T>
  void Assume(std::optional<T> Contract::*field, const std::string& key, T value) {
    if (out.*field) return;
    out.*field = std::move(value);
    out.source[key] = "assumed";
  }
};

}  // namespace

bool IsContractKey(const JobKey& key) {
  const std::string_view name(key.key);
  return name.starts_with(kPrefix) && name != "model.path" && name != "model.precision" &&
         name != "model.compile" && name != "model.max_error" && name != "model.libraries";
}

Contract ContractFromFlat(const FlatJob& flat, const std::string& source) {
  Contract contract;
  for (const auto& [name, value] : flat) {
    const JobKey* key = FindJobKey(name);
    if (key == nullptr || !IsContractKey(*key)) continue;
    const std::string short_name = name.substr(kPrefix.size());
    if (short_name == "scale") contract.scale = AsScale(value, *key);
    if (short_name == "dims") contract.dims = AsWord(value, *key) == "2" ? 2 : 3;
    const auto channels = [&] {
      const int64_t n = *AsInteger(value, *key);
      if (n > 65536)
        RefuseValue(value, name, "'" + Shown(value) + "' is beyond the limit of 65536");
      return static_cast<int32_t>(n);
    };
    if (short_name == "channels.in") contract.channels_in = channels();
    if (short_name == "channels.out") contract.channels_out = channels();
    if (short_name == "channels.order") contract.order = AsWord(value, *key);
    if (short_name == "range") contract.range = AsRange(value, *key);
    if (short_name == "mean") contract.mean = AsNumbers(value, *key);
    if (short_name == "std") {
      contract.std = AsNumbers(value, *key);
      for (const double x : *contract.std) {
        if (!(x > 0)) RefuseValue(value, name, "'" + Shown(value) + "' must be above 0");
      }
    }
    if (short_name == "multiple") contract.multiple = AsIntegers(value, *key);
    if (short_name == "radius") contract.radius = AsIntegers(value, *key);
    if (short_name == "tiling.tile") contract.tile = AsIntegers(value, *key);
    if (short_name == "tiling.overlap") contract.overlap = AsIntegers(value, *key);
    contract.source[short_name] = source;
  }
  // Far beyond every model, and small enough that no product of them overflows.
  constexpr int64_t kLargest = 1 << 20;
  const auto bound = [&](const std::optional<std::vector<int64_t>>& values, const char* name) {
    if (!values) return;
    for (const int64_t n : *values) {
      if (n > kLargest)
        RefuseValue(flat.at(name), name,
                    std::to_string(n) + " is beyond the limit of " + std::to_string(kLargest));
    }
  };
  bound(contract.multiple, "model.multiple");
  bound(contract.radius, "model.radius");
  bound(contract.tile, "model.tiling.tile");
  bound(contract.overlap, "model.tiling.overlap");
  if (contract.scale) {
    for (const Rational& scale : *contract.scale) {
      if (std::max(scale.num, scale.den) <= 1024) continue;
      RefuseValue(flat.at("model.scale"), "model.scale",
                  scale.ToString() + " is beyond the limit of 1024 or 1/1024");
    }
  }
  return contract;
}

Contract ContractFromJson(const std::string& json_text, const std::string& where) {
  Json json = Json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Error(Fault::kUsage,
                where + ": tilery.json is no JSON object: " + Printable(json_text, 80));
  }
  for (const char* note : kNotes) json.erase(note);
  FlatJob flat;
  Flatten(FromJson(json, where), std::string(kPrefix), &IsContractKey, flat);
  return ContractFromFlat(flat, where);
}

Contract MergeContracts(const Contract& job, const Contract& file, const Contract& probed,
                        MergeGaps gaps) {
  Contract out;
  Merger merge{out, {&job, &file, &probed}};
  merge.Take(&Contract::scale, "scale");
  merge.Take(&Contract::dims, "dims");
  merge.Take(&Contract::channels_in, "channels.in");
  merge.Take(&Contract::channels_out, "channels.out");
  merge.Take(&Contract::order, "channels.order");
  merge.Take(&Contract::range, "range");
  merge.Take(&Contract::mean, "mean");
  merge.Take(&Contract::std, "std");
  merge.Take(&Contract::multiple, "multiple");
  merge.Take(&Contract::radius, "radius");
  merge.Take(&Contract::tile, "tiling.tile");
  merge.Take(&Contract::overlap, "tiling.overlap");
  if (gaps == MergeGaps::kLeave) return out;
  merge.Assume(&Contract::scale, "scale", std::vector<Rational>{Rational{}});
  merge.Assume(&Contract::order, "channels.order", std::string("rgb"));
  merge.Assume(&Contract::range, "range", std::array<double, 2>{0, 1});
  merge.Assume(&Contract::multiple, "multiple", std::vector<int64_t>{1});
  return out;
}

}  // namespace tilery
