// Stands for the driver's libnvidia-ml.so.1. $TILERY_FAKE_GPUS: cards, each
// "name|uuid|major.minor|memory in GiB|status of its handle|MIG", with ";" between; "!N" alone:
// initialising fails with status N. MIG: "" for a card that can't be divided; "off"; else its MIG
// devices, each "profile/uuid/memory in GiB" or, where an index has none, the status that its
// handle gives, with "," between. The PCI bus of card N is 0x10 + N.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Card {
  std::string name, uuid;
  int major = 0, minor = 0, status = 0;
  unsigned long long memory = 0;
  std::string mig;
  std::vector<Card> parts;
};

unsigned long long Gib(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10) << 30;
}

std::vector<Card> PartsOf(const Card& card) {
  std::vector<Card> parts;
  std::istringstream texts(card.mig == "off" ? "" : card.mig);
  for (std::string text; std::getline(texts, text, ',');) {
    Card part;
    std::istringstream fields(text);
    std::string profile, memory;
    std::getline(fields, profile, '/');
    std::getline(fields, part.uuid, '/');
    std::getline(fields, memory, '/');
    part.name = card.name + " MIG " + profile;
    part.memory = Gib(memory);
    if (text.find('/') == std::string::npos) part.status = std::atoi(text.c_str());
    parts.push_back(part);
  }
  return parts;
}

std::string Setting() {
  const char* text = std::getenv("TILERY_FAKE_GPUS");
  return text == nullptr ? "" : text;
}

std::vector<Card>& Cards() {
  static std::vector<Card> cards;
  return cards;
}

constexpr int kInvalid = 2, kNotSupported = 3;

int Copy(const std::string& text, char* to, unsigned size) {
  if (text.size() >= size) return 7;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const std::string setting = Setting();
  if (!setting.empty() && setting[0] == '!') return std::atoi(setting.c_str() + 1);
  Cards().clear();
  std::istringstream cards(setting);
  for (std::string text; std::getline(cards, text, ';');) {
    std::istringstream fields(text);
    Card card;
    std::string capability, memory, status;
    std::getline(fields, card.name, '|');
    std::getline(fields, card.uuid, '|');
    std::getline(fields, capability, '|');
    std::getline(fields, memory, '|');
    std::getline(fields, status, '|');
    card.major = std::atoi(capability.c_str());
    card.minor = std::atoi(capability.c_str() + capability.find('.') + 1);
    card.memory = Gib(memory);
    card.status = std::atoi(status.c_str());
    std::getline(fields, card.mig, '|');
    card.parts = PartsOf(card);
    Cards().push_back(card);
  }
  return 0;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : status == 15 ? "GPU is lost" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return Copy("580.1", text, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Cards().size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= Cards().size()) return kInvalid;
  *device = &Cards()[index];
  return Cards()[index].status;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  return Copy(static_cast<Card*>(device)->name, text, size);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return Copy(static_cast<Card*>(device)->uuid, text, size);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = static_cast<Card*>(device)->major;
  *minor = static_cast<Card*>(device)->minor;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  const Card& card = *static_cast<Card*>(device);
  if (card.mig.empty()) return kNotSupported;
  *current = *pending = card.mig == "off" ? 0 : 1;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = static_cast<unsigned>(static_cast<Card*>(device)->parts.size());
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** part) {
  Card& card = *static_cast<Card*>(device);
  if (index >= card.parts.size()) return kInvalid;
  *part = &card.parts[index];
  return card.parts[index].status;
}
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char text[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  pci->domain = pci->device = 0;
  pci->bus = 0x10 + static_cast<unsigned>(static_cast<Card*>(device) - Cards().data());
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = static_cast<Card*>(device)->memory;
  memory[1] = memory[0] - (1ull << 30);
  memory[2] = 1ull << 30;
  return 0;
}
}
