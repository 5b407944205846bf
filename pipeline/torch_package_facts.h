// What AOTInductor packages say of themselves, against what they are wanted for: one that runs on
// other shapes or another processor than it was compiled for may do anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "io/box.h"

namespace tilery {

inline constexpr const char* kCompiledFolder = "data/aotinductor/";  // of what was compiled
// What tools/compile_model.py says, which describes its keys.
inline constexpr const char* kPackageFacts = "tilery_package.json";
inline constexpr const char* kPackageRemedy = "; compile it for this with tools/compile_model.py";

struct PackageUse {
  std::string device_word = "GPU";  // what messages call the device
  std::string gpu, capability;      // of the device here
  int dims = 2;
  Index tile{1, 1, 1};
  int64_t batch = 1;
  std::string precision, layout;
  int32_t channels_in = 3, channels_out = 3;
};

// The first member below `folder` whose name ends so; nullopt if there is none. Throws what Torch's
// reader and the JSON library throw.
std::optional<nlohmann::json> ReadPackageJson(const std::filesystem::path& package,
                                              const std::string& folder, const std::string& end);

// Type of its input and output ("f32", "f16", "bf16"); nullopt if it says nothing of itself.
// Error(kModel) with both values if it was compiled for something else; throws as ReadPackageJson.
std::optional<std::string> CheckPackage(const std::filesystem::path& package,
                                        const PackageUse& use);

// Error(kModel): the package can't be used, and why.
[[noreturn]] void RefusePackage(const std::filesystem::path& package, const std::string& why);

}  // namespace tilery
