#include "pipeline/codec/region.h"

#include <bit>

#include "io/byte_packer.h"
#include "io/error.h"
#include "pipeline/codec/inner_nodes.h"
#include "pipeline/codec/leaf_rest.h"

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
                  error)) {
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

std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error,
                                    NumberDevice* device) {
  const RegionNumbers numbers = NumbersOf(region, coding, error);
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
      rest.Encode(&coder, region.masks[leaf], region.LeafValues(leaf, coding.numbers),
                  numbers.raw[leaf]);
    coder.Finish();
    PutSize(&out, stream.size());
    out.PutBytes(stream.data(), stream.size());
  }
  std::vector<std::vector<std::byte>> streams;
  if (device != nullptr && !coding.contexts.empty()) {
    streams = device->Encode(numbers.blocks, coding.contexts);
  } else {
    for (const BlockNumbers& block : numbers.blocks)
      streams.push_back(EncodeNumbers(block, coding));
  }
  for (const std::vector<std::byte>& stream : streams) {
    PutSize(&out, stream.size());
    out.PutBytes(stream.data(), stream.size());
  }
  std::vector<std::byte> noise;
  for (const size_t leaf : numbers.leaves)
    AppendNoise(region.masks[leaf], region.LeafValues(leaf, coding.numbers), coding, &noise);
  out.PutBytes(noise.data(), noise.size());
  return {out.bytes().begin(), out.bytes().end()};
}

Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only, NumberDevice* device) {
  const auto next = [&bytes](size_t size) {
    if (size > bytes.size()) throw Error(Fault::kInput, "a region that ends early");
    const auto part = bytes.first(size);
    bytes = bytes.subspan(size);
    return part;
  };
  Region region;
  const size_t size = TakeSize(&bytes);
  RangeDecoder coder(next(size));
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
  std::vector<bool> raw(region.masks.size());
  for (size_t leaf = 0; leaf < region.masks.size(); ++leaf)
    raw[leaf] = rest.Decode(&coder, region.masks[leaf], values(leaf));
  std::vector<size_t> told;
  std::vector<BlockNumbers> blocks;
  std::vector<std::span<const std::byte>> streams;
  for (const RegionBlock& block : BlocksOf(region.node)) {
    BlockNumbers numbers(static_cast<size_t>(coding.numbers.components));
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      if (raw[leaf] || region.masks[leaf] == LeafMask{}) continue;
      numbers.Add(block.places[i], region.masks[leaf]);
      told.push_back(leaf);
    }
    if (numbers.places.empty()) continue;
    blocks.push_back(std::move(numbers));
    streams.push_back(next(TakeSize(&bytes)));
  }
  if (device != nullptr && !coding.contexts.empty()) {
    device->Decode(streams, coding.contexts, blocks);
  } else {
    for (size_t b = 0; b < blocks.size(); ++b) DecodeNumbers(streams[b], coding, &blocks[b]);
  }
  size_t next_told = 0;
  for (const BlockNumbers& block : blocks) {
    for (size_t i = 0; i < block.places.size(); ++i)
      RestoreLeaf(block, i, coding, values(told[next_told++]));
  }
  for (const size_t leaf : told)
    RestoreNoise(region.masks[leaf], next(NoiseBytes(region.masks[leaf], coding)), coding,
                 values(leaf));
  if (!bytes.empty()) throw Error(Fault::kInput, "bytes follow a region");
  return region;
}

}  // namespace tilery
