#include "cluster/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cluster/sysfs.h"
#include "io/error.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

// Of nvmlReturn_t.
constexpr int kNoPermission = 4;  // another's, on a machine that is shared
constexpr int kNotFound = 6;

constexpr unsigned kMigEnabled = 1;  // NVML_DEVICE_MIG_ENABLE

// Names and numbers of NVML's interface: docs.nvidia.com/deploy/nvml-api.
class Nvml {
 public:
  using Device = void*;

  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      why_ = "libnvidia-ml.so.1 of its driver was not found";
      return;
    }
    const auto init = Find<int()>("nvmlInit_v2");
    const int status = init == nullptr ? -1 : init();
    ready_ = status == 0;
    if (!ready_) why_ = Words(status);
  }
  ~Nvml() {
    if (ready_) Call<int()>("nvmlShutdown");
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool found() const { return library_ != nullptr; }
  bool ready() const { return ready_; }
  const std::string& why() const { return why_; }

  // The status of a call; -1 if the library has no such function.
  template <typename Function, typename... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    Function* const function = Find<Function>(name);
    return function == nullptr ? -1 : function(arguments...);
  }
  std::string Text(const char* name) const {
    char text[128] = {};
    return Call<int(char*, unsigned)>(name, text, unsigned{sizeof(text) - 1}) == 0 ? text : "";
  }
  std::string Text(const char* name, Device device) const {
    char text[128] = {};
    const int status =
        Call<int(Device, char*, unsigned)>(name, device, text, unsigned{sizeof(text) - 1});
    return status == 0 ? text : "";
  }
  std::string Words(int status) const {
    const auto words = Find<const char*(int)>("nvmlErrorString");
    const char* const text = words == nullptr ? nullptr : words(status);
    return text == nullptr ? "NVML's error " + std::to_string(status) : text;
  }

 private:
  template <typename Function>
  Function* Find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* const library_;
  bool ready_ = false;
  std::string why_;
};

// Cards whose device files this process sees.
std::vector<std::string> CardFiles() {
  std::vector<std::string> cards;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.rfind("nvidia", 0) == 0 && name.size() > 6 &&
                          std::all_of(name.begin() + 6, name.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (numbered) cards.push_back(entry.path().string());
  }
  std::sort(cards.begin(), cards.end());
  return cards;
}

// Cards on the bus that another driver than NVIDIA's has, or none: displays and 3-D controllers.
// Those that are handed to a virtual machine are nobody's here.
std::vector<std::string> CardsWithoutDriver() {
  std::vector<std::string> cards;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const fs::path card = entry.path();
    if (FirstLine(card / "vendor") != "0x10de") continue;
    if (FirstLine(card / "class").rfind("0x03", 0) != 0) continue;
    const std::string driver = fs::read_symlink(card / "driver", error).filename().string();
    if (driver == "nvidia" || driver == "vfio-pci") continue;
    cards.push_back("the card at PCI " + card.filename().string() +
                    (driver.empty() ? ": it has no driver" : ": its driver is " + driver));
  }
  std::sort(cards.begin(), cards.end());
  return cards;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string Listed(const std::vector<Gpu>& gpus) {
  std::string there;
  for (const Gpu& gpu : gpus) {
    there +=
        (there.empty() ? "" : "; ") + DeviceWord(gpu) + " (" + gpu.name + ", " + gpu.uuid + ")";
  }
  return there.empty() ? "no GPU that this process may use" : there;
}

// Whether the word is "cuda:N" or "cuda:N:M" and means this one.
bool NamesByNumber(const std::string& word, const Gpu& gpu) {
  if (!word.starts_with("cuda:")) return false;
  const size_t colon = word.find(':', 5);
  if (WholeNumber(word.substr(5, colon - 5)) != gpu.number) return false;
  return colon == std::string::npos ||
         (gpu.part >= 0 && WholeNumber(word.substr(colon + 1)) == gpu.part);
}

bool NamesByUuid(const std::string& word, const Gpu& gpu) {
  return (word.starts_with("GPU-") || word.starts_with("MIG-")) && gpu.uuid.starts_with(word);
}

// As /sys has it.
std::string PciAddress(const Nvml& nvml, Nvml::Device device) {
  struct Info {  // nvmlPciInfo_t
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
  } info{};
  if (nvml.Call<int(Nvml::Device, Info*)>("nvmlDeviceGetPciInfo_v3", device, &info) != 0) return "";
  char address[32];
  std::snprintf(address, sizeof address, "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
  return address;
}

// What is each one's own, be it a card or a part.
void Describe(const Nvml& nvml, Nvml::Device device, Gpu& gpu) {
  gpu.name = nvml.Text("nvmlDeviceGetName", device);
  gpu.uuid = nvml.Text("nvmlDeviceGetUUID", device);
  struct Memory {
    unsigned long long total, free, used;
  } memory{};
  nvml.Call<int(Nvml::Device, Memory*)>("nvmlDeviceGetMemoryInfo", device, &memory);
  gpu.memory = static_cast<int64_t>(memory.total);
  gpu.free = static_cast<int64_t>(memory.free);
}

// Drivers that know no MIG lack the function, cards that don't, refuse it.
bool IsDivided(const Nvml& nvml, Nvml::Device card) {
  unsigned current = 0, pending = 0;
  const int status = nvml.Call<int(Nvml::Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode",
                                                                        card, &current, &pending);
  return status == 0 && current == kMigEnabled;
}

// `gpu`: what is known of the card.
void AddParts(const Nvml& nvml, Nvml::Device card, const Gpu& gpu, const std::string& which,
              Gpus& gpus) {
  unsigned most = 0;
  nvml.Call<int(Nvml::Device, unsigned*)>("nvmlDeviceGetMaxMigDeviceCount", card, &most);
  bool any = false;
  for (unsigned k = 0; k < most; ++k) {
    Nvml::Device part = nullptr;
    const int status = nvml.Call<int(Nvml::Device, unsigned, Nvml::Device*)>(
        "nvmlDeviceGetMigDeviceHandleByIndex", card, k, &part);
    if (status == kNotFound) continue;  // indices may have gaps
    any = true;
    if (status == kNoPermission) continue;
    Gpu one = gpu;
    one.part = static_cast<int>(k);
    if (status == 0) Describe(nvml, part, one);
    if (status == 0 && !one.uuid.empty()) {
      gpus.usable.push_back(std::move(one));
    } else {
      gpus.unusable.push_back(which + "its MIG device " + std::to_string(k) + ": " +
                              (status == 0 ? "it says no UUID" : nvml.Words(status)));
    }
  }
  if (any) return;
  gpus.unusable.push_back(which +
                          "it is in MIG mode and has no MIG device; make some (nvidia-smi mig -cgi "
                          "PROFILE -C), or switch the mode off (nvidia-smi -mig 0)");
}

void AddCard(const Nvml& nvml, unsigned index, Gpus& gpus) {
  const std::string which = "GPU " + std::to_string(index) + " (driver " + gpus.driver + "): ";
  Nvml::Device card = nullptr;
  const int status =
      nvml.Call<int(unsigned, Nvml::Device*)>("nvmlDeviceGetHandleByIndex_v2", index, &card);
  if (status != 0) {
    if (status != kNoPermission) gpus.unusable.push_back(which + nvml.Words(status));
    return;
  }
  Gpu gpu;
  gpu.number = static_cast<int>(index);
  gpu.pci = PciAddress(nvml, card);
  nvml.Call<int(Nvml::Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability", card, &gpu.major,
                                           &gpu.minor);
  if (IsDivided(nvml, card)) return AddParts(nvml, card, gpu, which, gpus);
  Describe(nvml, card, gpu);
  if (gpu.uuid.empty()) {
    gpus.unusable.push_back(which + "it says no UUID");
  } else {
    gpus.usable.push_back(std::move(gpu));
  }
}

}  // namespace

std::string DeviceWord(const Gpu& gpu) {
  std::string word = "cuda:" + std::to_string(gpu.number);
  if (gpu.part >= 0) word += ":" + std::to_string(gpu.part);
  return word;
}

Gpus FindGpus() {
  Gpus gpus;
  gpus.unusable = CardsWithoutDriver();
  const Nvml nvml;
  if (!nvml.ready()) {
    for (const std::string& card : CardFiles()) gpus.unusable.push_back(card + ": " + nvml.why());
    return gpus;
  }
  gpus.driver = nvml.Text("nvmlSystemGetDriverVersion");
  unsigned count = 0;
  if (const int status = nvml.Call<int(unsigned*)>("nvmlDeviceGetCount_v2", &count); status != 0) {
    for (const std::string& card : CardFiles())
      gpus.unusable.push_back(card + ": " + nvml.Words(status));
    return gpus;
  }
  for (unsigned i = 0; i < count; ++i) AddCard(nvml, i, gpus);
  return gpus;
}

std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus, const std::vector<std::string>& words) {
  std::vector<bool> chosen(gpus.size());
  std::vector<Gpu> selected;
  for (const std::string& word : words) {
    bool known = false;
    for (size_t i = 0; i < gpus.size(); ++i) {
      const Gpu& gpu = gpus[i];
      if (word != "cuda" && !NamesByNumber(word, gpu) && !NamesByUuid(word, gpu) &&
          Lower(gpu.name) != Lower(word))
        continue;
      known = true;
      if (!chosen[i]) selected.push_back(gpu);
      chosen[i] = true;
    }
    if (known) continue;
    throw Error(Fault::kUsage, "execution.devices: '" + Printable(word, 100) +
                                   "' is not there; there is " + Listed(gpus) + ", and cpu");
  }
  return selected;
}

std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus, const char* value) {
  if (value == nullptr) return gpus;
  std::vector<Gpu> visible;
  const std::string all(value);
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    std::string word = all.substr(begin, end - begin);
    begin = end + 1;
    std::erase_if(word, [](unsigned char c) { return std::isspace(c) != 0; });
    const std::optional<int> number = WholeNumber(word);
    const auto its = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
      return number ? gpu.number == *number : NamesByUuid(word, gpu);
    });
    if (its == gpus.end()) break;
    const bool twice = std::any_of(visible.begin(), visible.end(),
                                   [&](const Gpu& gpu) { return gpu.uuid == its->uuid; });
    if (!twice) visible.push_back(*its);
  }
  if (visible.empty() && !gpus.empty() && !all.empty() && all[0] != '-') {
    throw Error(Fault::kUsage, "CUDA_VISIBLE_DEVICES is '" + Printable(all, 200) +
                                   "', and there is " + Listed(gpus) +
                                   ": name one of these by UUID, or a card by its number, or say "
                                   "--devices cpu");
  }
  return visible;
}

}  // namespace tilery
