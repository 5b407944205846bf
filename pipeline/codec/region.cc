#include "pipeline/codec/region.h"

#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "io/byte_packer.h"
#include "io/error.h"
#include "pipeline/codec/inner_nodes.h"
#include "pipeline/codec/leaf_rest.h"
#include "pipeline/codec/vq_region.h"

namespace tilery {
namespace {

constexpr int kLeafSide = 16;  // leaves along a lower node

const LeafMask* Beside(const Region* other, int place) {
  if (other == nullptr || !other->node.children.on(place)) return nullptr;
  size_t index = 0;
  for (size_t word = 0; word < static_cast<size_t>(place) / 64; ++word)
    index += static_cast<size_t>(std::popcount(other->node.children.words()[word]));
  const uint64_t below = (uint64_t{1} << (place % 64)) - 1;
  index += static_cast<size_t>(
      std::popcount(other->node.children.words()[static_cast<size_t>(place) / 64] & below));
  return &other->masks[index];
}

// Seven bits to a byte, the lowest first; all but the last have the eighth bit set.
void PutSize(BytePacker* out, size_t size) {
  for (; size >= 128; size /= 128) out->Put(static_cast<uint8_t>(size % 128 + 128));
  out->Put(static_cast<uint8_t>(size));
}
size_t TakeSize(std::span<const std::byte>* bytes) {
  size_t size = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    if (bytes->empty()) break;
    const auto byte = std::to_integer<size_t>(bytes->front());
    *bytes = bytes->subspan(1);
    size |= (byte & 127) << shift;
    if (byte < 128) return size;
  }
  throw Error(Fault::kInput, "a region that ends early");
}

}  // namespace

std::vector<RegionBlock> BlocksOf(const VdbNode& node) {
  constexpr int kBlocks = kLeafSide / kBlockLeaves;
  std::vector<RegionBlock> all(kBlocks * kBlocks * kBlocks);
  size_t leaf = 0;
  for (int place = node.children.NextOn(0); place >= 0;
       place = node.children.NextOn(place + 1), ++leaf) {
    const int x = place / (kLeafSide * kLeafSide), y = place / kLeafSide % kLeafSide,
              z = place % kLeafSide;
    const int block = (x / kBlockLeaves * kBlocks + y / kBlockLeaves) * kBlocks + z / kBlockLeaves;
    RegionBlock& of = all[static_cast<size_t>(block)];
    of.leaves.push_back(leaf);
    of.places.push_back((x % kBlockLeaves * kBlockLeaves + y % kBlockLeaves) * kBlockLeaves +
                        z % kBlockLeaves);
  }
  std::erase_if(all, [](const RegionBlock& block) { return block.leaves.empty(); });
  return all;
}

RegionNumbers NumbersOf(const Region& region, const RegionCoding& coding, CodingError* error) {
  RegionNumbers all;
  all.raw.resize(region.masks.size());
  const auto components = static_cast<size_t>(coding.numbers.components);
  for (const RegionBlock& block : BlocksOf(region.node)) {
    BlockNumbers numbers(components);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      const LeafMask& mask = region.masks[leaf];
      if (mask == LeafMask{}) continue;
      if (AddLeaf(block.places[i], mask, region.LeafValues(leaf, coding.numbers), coding, &numbers,
                  coding.vq ? nullptr : error)) {
        all.leaves.push_back(leaf);
        continue;
      }
      all.raw[leaf] = true;
      if (error != nullptr) error->numbers += CountOn(mask) * coding.numbers.components;
    }
    if (!numbers.places.empty()) all.blocks.push_back(std::move(numbers));
  }
  return all;
}

namespace {

VqDevice& CodesDevice(const RegionDevices& devices) {
  static VqCpu cpu;
  return devices.codes != nullptr ? *devices.codes : cpu;
}

std::vector<std::vector<std::byte>> StreamsOf(std::span<const BlockNumbers> blocks,
                                              const RegionCoding& coding,
                                              const RegionDevices& devices) {
  if (devices.numbers != nullptr && !coding.contexts.empty())
    return devices.numbers->Encode(blocks, coding.contexts);
  std::vector<std::vector<std::byte>> streams;
  for (const BlockNumbers& block : blocks) streams.push_back(EncodeNumbers(block, coding));
  return streams;
}

// The blocks that become codes, by which is smaller or can tell them; none where there are no
// codes.
std::vector<std::optional<VqBlock>> CodesOf(const Region& region, const RegionNumbers& numbers,
                                            const RegionCoding& coding, CodingError* error,
                                            const RegionDevices& devices) {
  std::vector<std::optional<VqBlock>> codes(numbers.blocks.size());
  if (!coding.vq) return codes;
  std::vector<VqBlock> all = EncodeVq(numbers.blocks, coding, CodesDevice(devices));
  size_t first = 0;  // leaf of a block
  const auto error_of = [&](const BlockNumbers& block) {
    CodingError sum;
    for (size_t i = 0; i < block.places.size(); ++i) {
      const size_t leaf = numbers.leaves[first + i];
      sum.Add(ErrorOf(block, i, region.LeafValues(leaf, coding.numbers), coding));
    }
    return sum;
  };
  for (size_t b = 0; b < all.size(); ++b) {
    CodingError here = error_of(all[b].restored);
    if (all[b].told && std::isfinite(here.most)) {
      codes[b] = std::move(all[b]);
    } else {
      here = error_of(numbers.blocks[b]);
    }
    if (error != nullptr) error->Add(here);
    first += numbers.blocks[b].places.size();
  }
  return codes;
}

void PutStream(BytePacker* out, std::span<const std::byte> stream) {
  PutSize(out, stream.size());
  out->PutBytes(stream.data(), stream.size());
}

}  // namespace

std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error,
                                    const RegionDevices& devices) {
  const RegionNumbers numbers = NumbersOf(region, coding, error);
  std::vector<std::optional<VqBlock>> codes = CodesOf(region, numbers, coding, error, devices);
  // Streams of whole numbers, of blocks that are no codes.
  std::vector<std::vector<std::byte>> streams(numbers.blocks.size());
  {
    const bool try_both = coding.vq && coding.vq->where_smaller;
    std::vector<BlockNumbers> told;
    std::vector<size_t> which;
    for (size_t b = 0; b < codes.size(); ++b) {
      if (codes[b] && !try_both) continue;
      told.push_back(numbers.blocks[b]);
      which.push_back(b);
    }
    std::vector<std::vector<std::byte>> made = StreamsOf(told, coding, devices);
    for (size_t i = 0; i < which.size(); ++i) {
      const size_t b = which[i];
      if (codes[b] && codes[b]->bytes() >= made[i].size()) codes[b].reset();
      if (!codes[b]) streams[b] = std::move(made[i]);
    }
  }
  std::vector<LeafKind> kinds(region.masks.size(), LeafKind::kNumbers);
  for (size_t leaf = 0; leaf < kinds.size(); ++leaf) {
    if (numbers.raw[leaf]) kinds[leaf] = LeafKind::kRaw;
  }
  for (size_t b = 0, next = 0; b < codes.size(); ++b) {
    for (size_t i = 0; i < numbers.blocks[b].places.size(); ++i, ++next) {
      if (codes[b]) kinds[numbers.leaves[next]] = LeafKind::kCodes;
    }
  }

  BytePacker out;
  {
    std::vector<std::byte> stream;
    RangeEncoder coder(&stream);
    InnerNodeModel(VdbLevel::kLower, coding.background).Encode(&coder, region.node);
    LeafMaskModel masks;
    size_t leaf = 0;
    const VdbMask& children = region.node.children;
    for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
      masks.Encode(&coder, place, region.masks[leaf++], Beside(other, place));
    LeafRestModel rest(coding);
    for (leaf = 0; leaf < region.masks.size(); ++leaf)
      rest.Encode(&coder, region.masks[leaf], region.LeafValues(leaf, coding.numbers), kinds[leaf]);
    coder.Finish();
    PutStream(&out, stream);
  }
  for (size_t b = 0; b < codes.size(); ++b) {
    if (!codes[b]) PutStream(&out, streams[b]);
  }
  for (const auto& block : codes) {
    if (!block) continue;
    PutStream(&out, block->codes);
    if (coding.bound > 0) PutStream(&out, block->residual);
  }
  std::vector<std::byte> noise;
  for (const size_t leaf : numbers.leaves)
    AppendNoise(region.masks[leaf], region.LeafValues(leaf, coding.numbers), coding, &noise);
  out.PutBytes(noise.data(), noise.size());
  return {out.bytes().begin(), out.bytes().end()};
}

namespace {

// Leaves of one kind, block by block, and where their values go.
struct ToldLeaves {
  std::vector<BlockNumbers> blocks;
  std::vector<std::span<const std::byte>> streams;
  std::vector<size_t> leaves;  // in the order of the blocks
};

template <typename Next>
ToldLeaves LeavesOf(LeafKind kind, const std::vector<LeafKind>& kinds, const Region& region,
                    size_t components, int streams, const Next& next) {
  ToldLeaves told;
  for (const RegionBlock& block : BlocksOf(region.node)) {
    BlockNumbers numbers(components);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      if (kinds[leaf] != kind || region.masks[leaf] == LeafMask{}) continue;
      numbers.Add(block.places[i], region.masks[leaf]);
      told.leaves.push_back(leaf);
    }
    if (numbers.places.empty()) continue;
    told.blocks.push_back(std::move(numbers));
    for (int i = 0; i < streams; ++i) told.streams.push_back(next());
  }
  return told;
}

}  // namespace

Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only, const RegionDevices& devices) {
  const auto next = [&bytes](size_t size) {
    if (size > bytes.size()) throw Error(Fault::kInput, "a region that ends early");
    const auto part = bytes.first(size);
    bytes = bytes.subspan(size);
    return part;
  };
  const auto next_stream = [&] { return next(TakeSize(&bytes)); };
  Region region;
  RangeDecoder coder(next_stream());
  InnerNodeModel(VdbLevel::kLower, coding.background).Decode(&coder, &region.node);
  region.node.origin = origin;
  LeafMaskModel masks;
  const VdbMask& children = region.node.children;
  for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
    region.masks.push_back(masks.Decode(&coder, place, Beside(other, place)));
  if (masks_only) return region;
  const size_t leaf_bytes = kVdbLeafVoxels * coding.numbers.bytes();
  region.values.resize(region.masks.size() * leaf_bytes);
  const auto values = [&](size_t leaf) {
    return std::span(region.values).subspan(leaf * leaf_bytes, leaf_bytes);
  };
  LeafRestModel rest(coding);
  std::vector<LeafKind> kinds(region.masks.size());
  for (size_t leaf = 0; leaf < region.masks.size(); ++leaf)
    kinds[leaf] = rest.Decode(&coder, region.masks[leaf], values(leaf));
  const auto components = static_cast<size_t>(coding.numbers.components);
  ToldLeaves told = LeavesOf(LeafKind::kNumbers, kinds, region, components, 1, next_stream);
  if (devices.numbers != nullptr && !coding.contexts.empty()) {
    devices.numbers->Decode(told.streams, coding.contexts, told.blocks);
  } else {
    for (size_t b = 0; b < told.blocks.size(); ++b)
      DecodeNumbers(told.streams[b], coding, &told.blocks[b]);
  }
  ToldLeaves codes =
      LeavesOf(LeafKind::kCodes, kinds, region, components, coding.bound > 0 ? 2 : 1, next_stream);
  if (!codes.blocks.empty()) DecodeVq(codes.streams, coding, CodesDevice(devices), codes.blocks);
  for (const ToldLeaves* const all : {&told, &codes}) {
    size_t at = 0;
    for (const BlockNumbers& block : all->blocks) {
      for (size_t i = 0; i < block.places.size(); ++i)
        RestoreLeaf(block, i, coding, values(all->leaves[at++]));
    }
  }
  for (const size_t leaf : told.leaves)
    RestoreNoise(region.masks[leaf], next(NoiseBytes(region.masks[leaf], coding)), coding,
                 values(leaf));
  if (!bytes.empty()) throw Error(Fault::kInput, "bytes follow a region");
  return region;
}

}  // namespace tilery
