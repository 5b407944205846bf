// Names of files in scratch: "<key, 32 hex digits>.<epoch>.<attempt>.<kind>".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tilery {

struct ScratchName {
  std::string key, kind;  // kind: "brick", "stage"
  int64_t epoch = 0;
};

// nullopt if `name` has another form. Lists of bricks have no attempt: "<key>.<epoch>.list".
std::optional<ScratchName> ParseScratchName(const std::string& name);

}  // namespace tilery
