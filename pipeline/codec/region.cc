#include "pipeline/codec/region.h"

#include <bit>

#include "io/byte_packer.h"
#include "io/error.h"
#include "pipeline/codec/block_coder.h"
#include "pipeline/codec/inner_nodes.h"

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

std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error) {
  BytePacker out;
  const auto put = [&](const std::vector<std::byte>& stream) {
    out.Put(static_cast<uint32_t>(stream.size()));
    out.PutBytes(stream.data(), stream.size());
  };
  {
    std::vector<std::byte> stream;
    RangeEncoder coder(&stream);
    InnerNodeModel(VdbLevel::kLower, coding.background).Encode(&coder, region.node);
    LeafMaskModel masks;
    size_t leaf = 0;
    const VdbMask& children = region.node.children;
    for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
      masks.Encode(&coder, place, region.masks[leaf++], Beside(other, place));
    coder.Finish();
    put(stream);
  }
  for (const RegionBlock& block : BlocksOf(region.node)) {
    std::vector<std::byte> stream;
    RangeEncoder coder(&stream);
    BlockCoder values(coding);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      values.Encode(&coder, block.places[i], region.masks[leaf],
                    region.LeafValues(leaf, coding.numbers), error);
    }
    coder.Finish();
    put(stream);
  }
  return {out.bytes().begin(), out.bytes().end()};
}

Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only) {
  const auto next = [&bytes] {
    ByteUnpacker length(bytes);
    const auto size = length.Get<uint32_t>();
    if (length.failed() || size > length.left())
      throw Error(Fault::kInput, "a region that ends early");
    const auto stream = bytes.subspan(sizeof size, size);
    bytes = bytes.subspan(sizeof size + size);
    return stream;
  };
  Region region;
  RangeDecoder coder(next());
  InnerNodeModel(VdbLevel::kLower, coding.background).Decode(&coder, &region.node);
  region.node.origin = origin;
  LeafMaskModel masks;
  const VdbMask& children = region.node.children;
  for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
    region.masks.push_back(masks.Decode(&coder, place, Beside(other, place)));
  if (masks_only) return region;
  const size_t leaf_bytes = kVdbLeafVoxels * coding.numbers.bytes();
  region.values.resize(region.masks.size() * leaf_bytes);
  for (const RegionBlock& block : BlocksOf(region.node)) {
    RangeDecoder block_coder(next());
    BlockCoder values(coding);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      values.Decode(&block_coder, block.places[i], region.masks[leaf],
                    std::span(region.values).subspan(leaf * leaf_bytes, leaf_bytes));
    }
  }
  if (!bytes.empty()) throw Error(Fault::kInput, "bytes follow a region");
  return region;
}

}  // namespace tilery
