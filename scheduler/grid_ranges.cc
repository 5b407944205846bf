#include "scheduler/grid_ranges.h"

#include <nlohmann/json.hpp>

#include "io/error.h"

namespace tilery {

using Json = nlohmann::json;

std::string RangesToBytes(const GridRanges& ranges) {
  Json json = Json::array();
  for (const auto& [label, range] : ranges) json.push_back({label, range[0], range[1]});
  std::string bytes;
  Json::to_cbor(json, bytes);  // labels need not be UTF-8
  return bytes;
}

GridRanges RangesFromBytes(const std::string& bytes) {
  try {
    GridRanges ranges;
    for (const Json& entry : Json::from_cbor(bytes))
      ranges[entry.at(0)] = {entry.at(1).get<double>(), entry.at(2).get<double>()};
    return ranges;
  } catch (const Json::exception& error) {
    throw Error(Fault::kInput, std::string("damaged list of ranges: ") + error.what());
  }
}

}  // namespace tilery
