// Stands for the driver's libnvidia-ml.so.1. $TILERY_FAKE_GPUS: cards, each
// "name|uuid|major.minor|memory in GiB|status of its handle", with ";" between; "!N" alone:
// initialising fails with status N.
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
};

std::string Setting() {
  const char* text = std::getenv("TILERY_FAKE_GPUS");
  return text == nullptr ? "" : text;
}

std::vector<Card>& Cards() {
  static std::vector<Card> cards;
  return cards;
}

constexpr int kInvalid = 2;

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
    card.memory = std::strtoull(memory.c_str(), nullptr, 10) << 30;
    card.status = std::atoi(status.c_str());
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
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = static_cast<Card*>(device)->memory;
  memory[1] = memory[0] - (1ull << 30);
  memory[2] = 1ull << 30;
  return 0;
}
}
