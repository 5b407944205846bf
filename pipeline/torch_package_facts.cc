#include "pipeline/torch_package_facts.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "io/error.h"

namespace tilery {
namespace {

using nlohmann::json;

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::optional<json> ReadPackageJson(const std::filesystem::path& package, const std::string& folder,
                                    const std::string& end) {
  caffe2::serialize::PyTorchStreamReader reader(package.string());
  for (const std::string& name : reader.getAllRecords()) {
    if (!name.starts_with(folder) || !name.ends_with(end)) continue;
    const auto [data, size] = reader.getRecord(name);
    return json::parse(std::string(static_cast<const char*>(data.get()), size));
  }
  return std::nullopt;
}

void RefusePackage(const std::filesystem::path& package, const std::string& why) {
  throw Error(Fault::kModel, "model " + Printable(package.native()) +
                                 " can't be used: " + Printable(why) + kPackageRemedy);
}

std::optional<std::string> CheckPackage(const std::filesystem::path& package,
                                        const PackageUse& use) {
  const auto facts = ReadPackageJson(package, "", kPackageFacts);
  if (!facts) return std::nullopt;
  const std::string here = use.gpu + " (" + use.capability + ")";
  const std::string built = Text(facts->at("gpu")) + " (" + Text(facts->at("capability")) + ")";
  if (built != here) {
    RefusePackage(package,
                  "it was compiled for " + built + ", and this " + use.device_word + " is " + here);
  }
  json tile = json::array();
  for (int a = 3 - use.dims; a < 3; ++a) tile.push_back(use.tile[static_cast<size_t>(a)]);
  const json wanted = {
      {"torch", TORCH_VERSION},          {"tile", tile},         {"batch", use.batch},
      {"precision", use.precision},      {"layout", use.layout}, {"channels_in", use.channels_in},
      {"channels_out", use.channels_out}};
  for (const char* key :
       {"torch", "tile", "batch", "precision", "layout", "channels_in", "channels_out"}) {
    const json& found = facts->at(key);
    if (found == wanted.at(key)) continue;
    RefusePackage(package, std::string("it was compiled for ") + key + " " + Text(found) +
                               ", and wanted is " + Text(wanted.at(key)));
  }
  return facts->at("io_dtype").get<std::string>();
}

}  // namespace tilery
