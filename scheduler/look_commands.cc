// Commands that look at files and at this machine: inspect, doctor.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iostream>

#include "cluster/gpus.h"
#include "cluster/message.h"
#include "io/error.h"
#include "io/format.h"
#include "io/tvdb_file.h"
#include "io/vdb_file.h"
#include "scheduler/commands.h"
#include "scheduler/devices.h"
#include "scheduler/grid_report.h"
#include "scheduler/inspect_grids.h"
#include "scheduler/model_file.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

Json ModelJson(const fs::path& file) {
  const ModelFile model = ReadModelFile(file);
  const Contract& c = model.contract;
  Json contract = Json::object();
  if (c.scale) {
    Json scale = Json::array();
    for (const Rational& r : *c.scale) scale.push_back(r.ToString());
    contract["scale"] = scale;
  }
  if (c.dims) contract["dims"] = *c.dims;
  if (c.channels_in) contract["channels_in"] = *c.channels_in;
  if (c.channels_out) contract["channels_out"] = *c.channels_out;
  if (c.order) contract["order"] = *c.order;
  if (c.range) contract["range"] = *c.range;
  if (c.mean) contract["mean"] = *c.mean;
  if (c.std) contract["std"] = *c.std;
  if (c.multiple) contract["multiple"] = *c.multiple;
  if (c.radius) contract["radius"] = *c.radius;
  if (c.tile) contract["tile"] = *c.tile;
  if (c.overlap) contract["overlap"] = *c.overlap;
  return {{"kind", "model"},
          {"format", model.kind},
          {"file", Printable(file.string(), 4096)},
          {"hash", model.hash},
          {"contract", contract}};
}

Json DataJson(const fs::path& file) {
  const auto reader = OpenReader(file);
  const Header& h = reader->header();
  const Metadata& m = reader->metadata();
  Json shape = Json::array();
  for (int a = 3 - h.dims; a < 3; ++a) shape.push_back(h.shape[a]);
  Json kept = Json::array();
  if (!m.icc.empty()) kept.push_back(fmt::format("ICC profile, {} bytes", m.icc.size()));
  if (!m.exif.empty()) kept.push_back(fmt::format("EXIF, {} bytes", m.exif.size()));
  if (!m.xmp.empty()) kept.push_back(fmt::format("XMP, {} bytes", m.xmp.size()));
  if (!m.iptc.empty()) kept.push_back(fmt::format("IPTC, {} bytes", m.iptc.size()));
  if (m.orientation != 1) kept.push_back(fmt::format("orientation {}", m.orientation));
  if (m.gamma) kept.push_back(fmt::format("gamma {}", *m.gamma));
  if (m.resolution) kept.push_back("resolution");
  if (!m.nifti.empty()) kept.push_back("NIfTI header with its affine");
  const char* alpha[] = {"none", "straight", "associated"};
  return {{"kind", h.dims == 2 ? "image" : "volume"},
          {"format", h.format},
          {"file", Printable(file.string(), 4096)},
          {"shape", shape},
          {"channels", h.channels},
          {"dtype", DTypeName(h.dtype)},
          {"alpha", alpha[static_cast<int>(h.alpha)]},
          {"random_access", h.access == Access::kRandom},
          {"metadata", kept}};
}

void PrintFlat(const Json& json, const std::string& indent = "") {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      std::cout << indent << key << "\n";
      PrintFlat(value, indent + "  ");
    } else if (value.is_array() && !value.empty() && value.front().is_object()) {
      for (const Json& one : value) {
        std::cout << fmt::format("{}{:<14}{}\n", indent, key, one.value("name", std::string()));
        PrintFlat(one, indent + "  ");
      }
    } else {
      std::cout << fmt::format("{}{:<14}{}\n", indent, key,
                               value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

using Check = std::function<void(const char* name, bool ok, const std::string& text)>;

// Whether a run that says nothing of devices finds what it would choose usable.
void CheckGpus(const Check& check) {
  try {
    const DeviceChoice choice = ChooseDevices({});
    if (!choice.gpu()) return check("gpu", true, "no NVIDIA GPU: models run on the CPU");
    for (const std::string& warning : choice.warnings) check("gpu", true, warning);
    const std::string driver = FindGpus().driver;
    for (const DeviceSeat& seat : choice.seats) {
      try {
        std::vector<std::string> warnings;
        const ProbeAnswer answer = AskWorker(ProbeRequest{}, seat, warnings);
        check("gpu", true,
              fmt::format("{}: {}, driver {}, Torch {}", seat.device, answer.device_kind, driver,
                          answer.torch));
      } catch (const Error& e) {
        check("gpu", false,
              fmt::format("{} ({}, driver {}): {}", seat.device, seat.name, driver, e.what()));
      }
    }
  } catch (const Error& e) {
    check("gpu", false, e.what());
  }
}

}  // namespace

int InspectCommand(const fs::path& file, bool json) {
  Json document;
  const std::string extension = file.extension().string();
  if (extension == ".pt" || extension == ".pt2" || extension == ".pth")
    document = ModelJson(file);
  else if (IsVdbFile(file))
    document = GridsJson(file);
  else if (IsTvdbFile(file))
    document = CompressedGridsJson(file);
  else
    document = DataJson(file);
  if (json)
    std::cout << document.dump() << std::endl;
  else
    PrintFlat(document);
  return 0;
}

// Says what a run would find here, and what to do about what is missing. Exit code 0 if a run can
// work.
int DoctorCommand(bool json) {
  Json checks = Json::array();
  bool good = true;
  const Check check = [&](const char* name, bool ok, const std::string& text) {
    checks.push_back({{"check", name}, {"ok", ok}, {"text", text}});
    good = good && ok;
  };
  check("cpu", true, fmt::format("{}, {} usable cores", CpuName(), UsableCpus()));
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  check("memory", true, fmt::format("{:.1f} GiB", pages / (1 << 30)));
  try {
    std::vector<std::string> warnings;
    const DeviceSeat seat = CpuSeat();
    const ProbeAnswer answer = AskWorker(ProbeRequest{}, seat, warnings);
    check("worker", true,
          fmt::format("{}, Torch {}", Printable(seat.executable.string()), answer.torch));
    check("device", true, answer.device_kind);
    for (const std::string& warning : warnings) check("caches", true, warning);
  } catch (const Error& e) {
    check("worker", false, e.what());
  }
  if (const auto cache = CacheFolder()) check("caches", true, Printable(cache->string()));
  CheckGpus(check);
  struct statvfs disk {};
  if (statvfs(".", &disk) == 0)
    check("disk", true,
          fmt::format("{:.1f} GiB free in {}",
                      static_cast<double>(disk.f_bavail) * disk.f_frsize / (1 << 30),
                      Printable(fs::current_path().string())));
  if (json) {
    std::cout << Json{{"ok", good}, {"checks", checks}}.dump() << std::endl;
  } else {
    for (const Json& c : checks)
      std::cout << fmt::format("{:<4}{:<9}{}\n", c.at("ok").get<bool>() ? "ok" : "BAD",
                               c.at("check").get<std::string>(), c.at("text").get<std::string>());
  }
  return good ? 0 : kExitUsage;
}

}  // namespace tilery
