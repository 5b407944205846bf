#include "pipeline/codec/grid_bounds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "io/error.h"

namespace tilery {
namespace {

constexpr const char* kHow =
    "write it as 1% (of each grid's range), 0.01 (in the grid's units), lossless, or grid by grid: "
    "density=1%,vel=0.01,flame=lossless";

std::string Trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  const auto begin = std::find_if_not(text.begin(), text.end(), blank);
  return {begin, text.end()};
}

GridBound ParseBound(const std::string& text, const std::string& whole) {
  const auto refuse = [&](const std::string& why) {
    return Error(Fault::kUsage, "'" + Printable(whole, 200) + "': " + why + "; " + kHow);
  };
  if (text == "lossless") return {GridBound::Kind::kExact, 0};
  if (text == "none") return {GridBound::Kind::kNone, 0};
  std::string number = text;
  const bool share = number.ends_with('%');
  if (share) number = Trimmed(number.substr(0, number.size() - 1));
  double value = 0;
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value))
    throw refuse("'" + Printable(text, 60) + "' is no bound");
  if (value < 0) throw refuse("'" + Printable(text, 60) + "' is below 0");
  if (share && value >= 100) throw refuse("'" + Printable(text, 60) + "' leaves nothing of a grid");
  if (value == 0) return {GridBound::Kind::kExact, 0};
  return {share ? GridBound::Kind::kShare : GridBound::Kind::kAbsolute,
          share ? value / 100 : value};
}

std::string WordsOf(const GridBound& bound) {
  std::ostringstream out;
  switch (bound.kind) {
    case GridBound::Kind::kExact:
      return "exactly";
    case GridBound::Kind::kAbsolute:
      out << "within " << bound.value;
      break;
    case GridBound::Kind::kShare:
      out << "within " << bound.value * 100 << " % of the range";
      break;
    case GridBound::Kind::kNone:
      return "as near as codes come";
  }
  return out.str();
}

}  // namespace

const GridBound& GridBounds::For(const VdbGrid& grid) const {
  for (const std::string* const name : {&grid.label, &grid.name}) {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first == *name; });
    if (found != named.end()) return found->second;
  }
  return standard;
}

std::string GridBounds::Words() const {
  std::string words = WordsOf(standard);
  for (const auto& [name, bound] : named)
    words += ", " + Printable(name, 60) + " " + WordsOf(bound);
  return words;
}

GridBounds ParseGridBounds(const std::string& text) {
  GridBounds bounds;
  bool standard = false;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    part = Trimmed(part);
    const size_t equals = part.rfind('=');
    if (equals == std::string::npos) {
      if (standard)
        throw Error(Fault::kUsage, "'" + Printable(text, 200) +
                                       "' has two bounds for grids that are not named; " + kHow);
      bounds.standard = ParseBound(part, text);
      standard = true;
      continue;
    }
    const std::string name = Trimmed(part.substr(0, equals));
    for (const auto& [other, bound] : bounds.named) {
      if (other == name)
        throw Error(Fault::kUsage, "'" + Printable(text, 200) + "' names the grid '" +
                                       Printable(name, 60) + "' twice; " + kHow);
    }
    bounds.named.emplace_back(name, ParseBound(Trimmed(part.substr(equals + 1)), text));
  }
  if (!standard && bounds.named.empty()) ParseBound(text, text);
  return bounds;
}

GridBounds Resolve(const GridBounds& bounds, const std::vector<VdbGrid>& grids,
                   const GridRanges& ranges) {
  GridBounds resolved;
  resolved.method = bounds.method;
  resolved.standard = bounds.standard;
  for (const VdbGrid& grid : grids) {
    GridBound bound = bounds.For(grid);
    const auto range = ranges.find(grid.label);
    if (bound.kind == GridBound::Kind::kShare && range != ranges.end()) {
      const auto [least, most] = range->second;
      bound = most > least ? GridBound{GridBound::Kind::kAbsolute, bound.value * (most - least)}
                           : GridBound{GridBound::Kind::kExact, 0};
    }
    resolved.named.emplace_back(grid.label, bound);
  }
  return resolved;
}

}  // namespace tilery
