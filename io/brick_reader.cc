#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/brick.h"
#include "io/brick_layout.h"
#include "io/error.h"
#include "io/hash.h"

namespace tilery {

struct BrickReader::Impl {
  struct Stored {
    int64_t offset;  // of the first block in the file
    std::vector<uint64_t> hashes;
  };

  InputFile file;
  std::vector<BrickArray> arrays;
  std::vector<Stored> stored;

  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(Fault::kTransient, "brick " + Printable(file.path().string()) +
                                       " is damaged: " + why + "; its unit has to run again");
  }
  void Load(const std::string& unit_key);
  void LoadTable(std::span<const std::byte> table, int64_t blocks_end);
  // Reads one block and checks it. `into` has the size of the block.
  void ReadBlock(size_t index, int64_t block, std::span<std::byte> into) const;
  void ReadAt(int64_t offset, std::span<std::byte> into) const;
};

void BrickReader::Impl::ReadAt(int64_t offset, std::span<std::byte> into) const {
  try {
    file.ReadAt(offset, into);
  } catch (const Error& error) {  // whatever is wrong with a cache, it can be made again
    throw Error(Fault::kTransient, error.what());
  }
}

void BrickReader::Impl::Load(const std::string& unit_key) {
  const std::vector<std::byte> wanted = MakeBrickHeader(unit_key);
  const int64_t body_end = file.size() - static_cast<int64_t>(kBrickFooterSize);
  if (body_end < static_cast<int64_t>(kBrickHeaderSize)) {
    Fail(std::to_string(file.size()) + " bytes are too few for any brick");
  }
  std::array<std::byte, kBrickHeaderSize> header;
  std::array<std::byte, kBrickFooterSize> footer;
  ReadAt(0, header);
  ReadAt(body_end, footer);
  if (std::memcmp(header.data(), kBrickMagic, kBrickMagicSize) != 0)
    Fail("it does not begin as a brick");
  if (!std::equal(header.begin(), header.end(), wanted.begin(), wanted.end())) {
    Fail("it was written for another unit or by another version");
  }
  ByteUnpacker end(footer);
  const auto table_offset = end.Get<uint64_t>();
  const auto table_size = end.Get<uint64_t>();
  const auto table_hash = end.Get<uint64_t>();
  if (end.GetText(kBrickMagicSize) != kBrickEndMagic) Fail("its end is missing");
  // The table must fill the space between the blocks and the footer: this also bounds its size by
  // that of the file before anything is allocated.
  const auto limit = static_cast<uint64_t>(body_end);
  if (table_offset < kBrickHeaderSize || table_offset > limit ||
      table_size != limit - table_offset) {
    Fail("its size of " + std::to_string(file.size()) + " bytes is not what its end says");
  }
  std::vector<std::byte> table(table_size);
  ReadAt(static_cast<int64_t>(table_offset), table);
  if (BrickTableHash(header, table, table_offset) != table_hash) {
    Fail("the checksum of its table is wrong");
  }
  LoadTable(table, static_cast<int64_t>(table_offset));
}

void BrickReader::Impl::LoadTable(std::span<const std::byte> table, int64_t blocks_end) {
  ByteUnpacker in(table);
  const auto count = in.Get<uint32_t>();
  auto offset = static_cast<int64_t>(kBrickHeaderSize);
  for (uint32_t i = 0; i < count && !in.failed(); ++i) {
    BrickArray array;
    array.name = in.GetText(in.Get<uint8_t>());
    const auto dtype = in.Get<uint8_t>();
    if (dtype > static_cast<uint8_t>(DType::kF64)) Fail("its table names an unknown sample type");
    array.dtype = static_cast<DType>(dtype);
    array.channels = in.Get<int64_t>();
    for (int axis = 0; axis < 3; ++axis) {
      array.box.begin[axis] = in.Get<int64_t>();
      array.box.end[axis] = in.Get<int64_t>();
    }
    const std::optional<int64_t> bytes = BrickArrayBytes(array);
    if (in.failed() || !bytes || *bytes > blocks_end - offset) Fail("its table makes no sense");
    const auto blocks = static_cast<uint64_t>(BrickBlocking(array).count());
    if (blocks > in.left() / sizeof(uint64_t)) Fail("its table lacks checksums");
    Stored entry{offset, std::vector<uint64_t>(blocks)};
    for (uint64_t& hash : entry.hashes) hash = in.Get<uint64_t>();
    offset += *bytes;
    arrays.push_back(std::move(array));
    stored.push_back(std::move(entry));
  }
  if (in.failed() || in.left() != 0 || offset != blocks_end) Fail("its table makes no sense");
}

void BrickReader::Impl::ReadBlock(size_t index, int64_t block, std::span<std::byte> into) const {
  const int64_t offset = stored[index].offset + BrickBlocking(arrays[index]).OffsetOf(block);
  ReadAt(offset, into);
  if (ShortHash(into) != stored[index].hashes[static_cast<size_t>(block)]) {
    Fail("the checksum of " + std::to_string(into.size()) + " bytes at offset " +
         std::to_string(offset) + " (array \"" + Printable(arrays[index].name, 80) +
         "\") is wrong");
  }
}

BrickReader::BrickReader(const std::filesystem::path& path, const std::string& unit_key) {
  try {
    impl_.reset(new Impl{InputFile(path), {}, {}});
  } catch (const Error& error) {
    throw Error(Fault::kTransient, std::string(error.what()) + "; its unit has to run again");
  }
  impl_->Load(unit_key);
}

BrickReader::~BrickReader() = default;

const std::vector<BrickArray>& BrickReader::arrays() const { return impl_->arrays; }

void BrickReader::Read(size_t index, const Box& region, const View& out) const {
  const BrickArray* array = index < impl_->arrays.size() ? &impl_->arrays[index] : nullptr;
  if (array == nullptr || !array->box.contains(region) || out.dtype != array->dtype ||
      out.channels != array->channels || out.shape != region.shape()) {
    throw Error(Fault::kInternal, "read of " + ToString(region) + " from array " +
                                      std::to_string(index) + " of brick " +
                                      Printable(impl_->file.path().string()) +
                                      " does not match what is there");
  }
  if (region.empty() || array->channels == 0) return;
  const BrickBlocking blocking(*array);
  const Index corner = array->box.begin;
  const Box local = Shift(region, {-corner[0], -corner[1], -corner[2]});
  std::vector<std::byte> scratch;
  const int64_t first_group = local.begin[0] / blocking.planes;
  const int64_t last_group = (local.end[0] - 1) / blocking.planes;
  const int64_t first_rows = local.begin[1] / blocking.rows;
  const int64_t last_rows = (local.end[1] - 1) / blocking.rows;
  for (int64_t group = first_group; group <= last_group; ++group) {
    for (int64_t rows = first_rows; rows <= last_rows; ++rows) {
      const int64_t block = group * blocking.blocks_per_plane() + rows;
      const Box box = blocking.BoxOf(block);
      const auto size = static_cast<size_t>(blocking.BytesOf(block));
      const Box part = Intersect(box, local);
      const View target =
          out.Crop(Shift(part, {-local.begin[0], -local.begin[1], -local.begin[2]}));
      if (part == box && IsDense(target, Layout::kInterleaved)) {
        impl_->ReadBlock(index, block, {target.data, size});
        continue;
      }
      scratch.resize(std::max(scratch.size(), size));
      impl_->ReadBlock(index, block, std::span(scratch).first(size));
      const View all = DenseView(scratch.data(), array->dtype, array->channels, box.shape(),
                                 Layout::kInterleaved);
      CopyView(all.Crop(Shift(part, {-box.begin[0], -box.begin[1], -box.begin[2]})), target);
    }
  }
}

void VerifyBrick(const std::filesystem::path& path, const std::string& unit_key) {
  const BrickReader reader(path, unit_key);
  std::vector<std::byte> block;
  for (size_t index = 0; index < reader.arrays().size(); ++index) {
    const BrickArray& array = reader.arrays()[index];
    const BrickBlocking blocking(array);
    for (int64_t i = 0; i < blocking.count(); ++i) {
      const Box box = Shift(blocking.BoxOf(i), array.box.begin);
      block.resize(std::max(block.size(), static_cast<size_t>(blocking.BytesOf(i))));
      reader.Read(
          index, box,
          DenseView(block.data(), array.dtype, array.channels, box.shape(), Layout::kInterleaved));
    }
  }
}

}  // namespace tilery
