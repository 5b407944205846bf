#include "io/hash.h"

#include <xxhash.h>

#include <vector>

#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

std::string HexOf(const XXH128_hash_t& hash) {
  static constexpr char kHex[] = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) text += {kHex[byte >> 4], kHex[byte & 15]};
  return text;
}

}  // namespace

struct ContentHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw Error(Fault::kTransient, "out of memory for a hash");
  XXH3_128bits_reset(state_->xxh);
}

ContentHash::~ContentHash() = default;

void ContentHash::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string ContentHash::Hex() const { return HexOf(XXH3_128bits_digest(state_->xxh)); }

std::string HashBytes(std::span<const std::byte> bytes) {
  return HexOf(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string HashText(const std::string& text) { return HashBytes(std::as_bytes(std::span(text))); }

std::string HashFile(const std::filesystem::path& path) {
  constexpr size_t kBlock = size_t{1} << 20;
  const InputFile file(path);
  ContentHash hash;
  std::vector<std::byte> block(kBlock);
  int64_t offset = 0;
  while (const size_t got = file.ReadSome(offset, block)) {
    hash.Update(std::span(block).first(got));
    offset += static_cast<int64_t>(got);
  }
  if (offset != file.size()) {
    throw Error(Fault::kInput, "hash " + Printable(path.string()) + ": the file had " +
                                   std::to_string(file.size()) + " bytes and now has " +
                                   std::to_string(offset) +
                                   "; let no one write to it during a run");
  }
  return hash.Hex();
}

uint64_t ShortHash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace tilery
