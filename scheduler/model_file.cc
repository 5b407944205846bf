// The only file that knows libzip.
#include "scheduler/model_file.h"

#include <zip.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

constexpr zip_uint64_t kLargestContract = 1 << 20;

[[noreturn]] void Refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(Fault::kUsage, "model.path " + Printable(path.string()) + ": " + what);
}

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;

Archive OpenArchive(const std::filesystem::path& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string why = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS || code == ZIP_ER_EOF) {
    Refuse(path, "no model: a TorchScript file is a zip archive, and this is none or is cut off (" +
                     why + ")");
  }
  Refuse(path, "can't be opened: " + why);
}

// An entry's name without the archive's own top folder: "code/__torch__.py", "extra/tilery.json".
std::string_view BelowTop(const char* name) {
  const std::string_view full(name);
  const size_t slash = full.find('/');
  return slash == full.npos ? full : full.substr(slash + 1);
}

std::string ReadEntry(const std::filesystem::path& path, zip_t* archive, zip_uint64_t index) {
  zip_stat_t info;
  if (zip_stat_index(archive, index, 0, &info) != 0 || info.size > kLargestContract) {
    Refuse(path, "its tilery.json is larger than " + std::to_string(kLargestContract) + " bytes");
  }
  const std::unique_ptr<zip_file_t, CloseEntry> entry(zip_fopen_index(archive, index, 0));
  std::string text(info.size, '\0');
  if (!entry ||
      zip_fread(entry.get(), text.data(), text.size()) != static_cast<zip_int64_t>(text.size())) {
    Refuse(path, "its tilery.json can't be read: the archive is damaged");
  }
  return text;
}

// "net.pt2: does not say ...": of a package that the tool did not make.
[[noreturn]] void RefuseForeign(const std::filesystem::path& path) {
  Refuse(path,
         "a compiled package (AOTInductor) that does not say what it was compiled for; compile the "
         "model with `tilery compile`, or give the exported program that it was made from");
}

// A package takes what it was compiled for and nothing else.
void TakePackageFacts(const std::filesystem::path& path, Contract& contract) {
  try {
    const auto facts = nlohmann::json::parse(ReadPackageFacts(path).value_or(""));
    const nlohmann::json said = {
        {"dims", facts.at("tile").size()},
        {"scale", facts.at("scale")},
        {"channels", {{"in", facts.at("channels_in")}, {"out", facts.at("channels_out")}}},
        {"tiling", {{"tile", facts.at("tile")}}}};
    const Contract compiled = ContractFromJson(said.dump(), "file");
    if (contract.tile != compiled.tile) contract.overlap.reset();
    contract = MergeContracts(compiled, contract, {}, MergeGaps::kLeave);
  } catch (const nlohmann::json::exception&) {
    RefuseForeign(path);
  }
}

}  // namespace

std::string ModelFile::Key() const {
  if (libraries.empty()) return hash;
  return HashText(hash + "\n" + LibrariesHash(libraries));
}

std::vector<OperatorLibrary> ReadLibraries(const std::vector<std::string>& paths) {
  std::vector<OperatorLibrary> libraries;
  for (const std::string& path : paths) {
    try {
      libraries.push_back({path, HashFile(path)});
    } catch (const Error& e) {
      throw Error(Fault::kUsage,
                  "model.libraries: " + Printable(path) + " can't be read: " + e.what() +
                      "; name the shared library that defines the model's operators");
    }
  }
  return libraries;
}

std::string LibrariesHash(const std::vector<OperatorLibrary>& libraries) {
  std::string hashes;
  for (const OperatorLibrary& library : libraries) hashes += library.hash + " ";
  return hashes.empty() ? "" : HashText(hashes);
}

ModelFile ReadModelOf(const Job& job) {
  ModelFile model = ReadModelFile(job.model.path);
  model.libraries = ReadLibraries(job.model.libraries);
  return model;
}

ModelFile ReadModelFile(const std::filesystem::path& path, ModelUse use) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) Refuse(path, "there is no such file");
  if (!std::filesystem::is_regular_file(status)) Refuse(path, "a model must be a file");
  const Archive archive = OpenArchive(path);
  bool data = false, code = false, exported = false, compiled = false;
  zip_int64_t contract = -1;
  const zip_int64_t entries = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t k = 0; k < entries; ++k) {
    const char* name = zip_get_name(archive.get(), static_cast<zip_uint64_t>(k), ZIP_FL_ENC_RAW);
    if (name == nullptr) continue;
    const std::string_view entry = BelowTop(name);
    const std::string_view whole(name);
    data = data || entry == "data.pkl";
    code = code || entry.starts_with("code/");
    exported = exported || entry.starts_with("models/") || whole.ends_with("exported_program.json");
    compiled = compiled || whole.find("aotinductor/") != whole.npos;
    if (entry == "extra/tilery.json" || whole == "extra/tilery.json") contract = k;
  }
  const bool program = exported && !code;
  if (compiled && use == ModelUse::kCompile) {
    Refuse(path, "is compiled already; give the exported program it was made from");
  }
  if (!compiled && !program && (!data || !code)) {
    Refuse(path, data ? "holds weights without code (a state dict); save the model with "
                        "torch.jit.script or torch.jit.trace"
                      : "a zip archive, but no TorchScript model (no data.pkl)");
  }
  ModelFile model;
  model.path = path.string();
  model.kind = compiled ? "package" : program ? "exported" : "torchscript";
  if (contract >= 0) {
    const std::string text = ReadEntry(path, archive.get(), static_cast<zip_uint64_t>(contract));
    try {
      model.contract = ContractFromJson(text, "file");
    } catch (const Error& refused) {
      Refuse(path, std::string("its tilery.json is wrong: ") + refused.what());
    }
  }
  if (compiled) TakePackageFacts(path, model.contract);
  try {
    model.hash = HashFile(path);
  } catch (const Error& failed) {
    Refuse(path, failed.what());
  }
  return model;
}

std::optional<std::string> ReadPackageFacts(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    const Archive archive = OpenArchive(path);
    bool compiled = false;
    zip_int64_t facts = -1;
    const zip_int64_t entries = zip_get_num_entries(archive.get(), 0);
    for (zip_int64_t k = 0; k < entries; ++k) {
      const char* name = zip_get_name(archive.get(), static_cast<zip_uint64_t>(k), ZIP_FL_ENC_RAW);
      if (name == nullptr) continue;
      const std::string_view entry(name);
      compiled = compiled || entry.find("aotinductor/") != entry.npos;
      if (entry.ends_with("extra/tilery_package.json")) facts = k;
    }
    if (!compiled || facts < 0) return std::nullopt;
    return ReadEntry(path, archive.get(), static_cast<zip_uint64_t>(facts));
  } catch (const Error&) {
    return std::nullopt;
  }
}

PackageFacts FactsOfPackage(const std::filesystem::path& path) {
  try {
    const auto json = nlohmann::json::parse(ReadPackageFacts(path).value_or(""));
    PackageFacts facts;
    json.at("gpu").get_to(facts.gpu);
    json.at("capability").get_to(facts.capability);
    json.at("torch").get_to(facts.torch);
    json.at("tile").get_to(facts.tile);
    json.at("batch").get_to(facts.batch);
    json.at("precision").get_to(facts.precision);
    json.at("layout").get_to(facts.layout);
    return facts;
  } catch (const nlohmann::json::exception&) {
    RefuseForeign(path);
  }
}

}  // namespace tilery
