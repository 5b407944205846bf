// Layout, all numbers little-endian:
//   header   magic, version, key of the unit
//   blocks   of every array in turn, without gaps
//   table    per array: name, dtype, channels, box, and one XXH3-64 per block
//   footer   offset and size of the table, XXH3-64 of header + table + those two numbers, magic
// The size of the file must be exactly what the footer says, so no byte of it is unchecked.
#include "io/brick.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

constexpr char kMagic[] = "TileryBr";
constexpr char kEndMagic[] = "TileryBe";
constexpr size_t kMagicSize = 8;
constexpr uint32_t kVersion = 1;
constexpr size_t kKeySize = 32;
constexpr size_t kHeaderSize = kMagicSize + sizeof(uint32_t) + kKeySize;
constexpr size_t kFooterSize = 3 * sizeof(uint64_t) + kMagicSize;
constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr size_t kLongestName = 255;

// How an array is cut into blocks: whole planes where a plane is small, else whole rows of one
// plane. A single row is never cut, however long.
struct Blocking {
  Index shape;
  int64_t row_bytes;
  int64_t planes;  // per block, at least 1
  int64_t rows;    // per block, shape[1] if `planes` may be more than 1

  Blocking(const BrickArray& array)
      : shape(array.box.shape()),
        row_bytes(shape[2] * array.channels * static_cast<int64_t>(DTypeSize(array.dtype))) {
    const int64_t row = std::max<int64_t>(row_bytes, 1);
    const int64_t plane = std::max<int64_t>(row_bytes * shape[1], 1);
    planes = plane <= kBlockBytes ? kBlockBytes / plane : 1;
    rows = plane <= kBlockBytes ? shape[1] : std::max<int64_t>(kBlockBytes / row, 1);
  }
  int64_t blocks_per_plane() const { return (shape[1] + rows - 1) / rows; }  // of a group of planes
  int64_t count() const {
    if (shape[0] * shape[1] * row_bytes == 0) return 0;
    return (shape[0] + planes - 1) / planes * blocks_per_plane();
  }
  // In the array's own coordinates, which count from the corner of its box.
  Box BoxOf(int64_t block) const {
    const int64_t z = block / blocks_per_plane() * planes;
    const int64_t y = block % blocks_per_plane() * rows;
    return {{z, y, 0}, {std::min(z + planes, shape[0]), std::min(y + rows, shape[1]), shape[2]}};
  }
  int64_t OffsetOf(int64_t block) const {
    const Box box = BoxOf(block);
    return (box.begin[0] * shape[1] + box.begin[1]) * row_bytes;
  }
  int64_t BytesOf(int64_t block) const {
    const Box box = BoxOf(block);
    return box.extent(0) * box.extent(1) * row_bytes;
  }
};

// Bytes of the array, or nothing for one that no file can hold; for tables that may be nonsense.
std::optional<int64_t> CheckedBytes(const BrickArray& array) {
  if (array.channels < 0) return std::nullopt;
  __int128 bytes = static_cast<__int128>(array.channels) * DTypeSize(array.dtype);
  for (int axis = 0; axis < 3; ++axis) {
    const __int128 extent = static_cast<__int128>(array.box.end[axis]) - array.box.begin[axis];
    if (extent < 0 || extent > (__int128{1} << 62)) return std::nullopt;
    bytes *= extent;
    if (bytes > (__int128{1} << 62)) return std::nullopt;
  }
  return static_cast<int64_t>(bytes);
}

uint64_t HashOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

class Packer {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T>);
    PutBytes(&value, sizeof(value));
  }
  void PutBytes(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what Packer wrote; asking for more than is left yields zeros and `failed`.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    T value = 0;
    if (bytes_.size() < sizeof(T)) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string GetText(size_t size) {
    if (bytes_.size() < size) {
      failed_ = true;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }
  size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

std::vector<std::byte> MakeHeader(const std::string& unit_key) {
  if (unit_key.size() != kKeySize) {
    throw Error(Fault::kInternal, "brick key \"" + Printable(unit_key, 80) + "\" has " +
                                      std::to_string(unit_key.size()) + " digits instead of 32");
  }
  Packer header;
  header.PutBytes(kMagic, kMagicSize);
  header.Put(kVersion);
  header.PutBytes(unit_key.data(), kKeySize);
  return {header.bytes().begin(), header.bytes().end()};
}

// Ties header, table and its place in the file together.
uint64_t TableHash(std::span<const std::byte> header, std::span<const std::byte> table,
                   uint64_t table_offset) {
  Packer all;
  all.PutBytes(header.data(), header.size());
  all.Put(table_offset);
  all.Put(static_cast<uint64_t>(table.size()));
  all.PutBytes(table.data(), table.size());
  return HashOf(all.bytes());
}

}  // namespace

struct BrickWriter::Impl {
  OutputFile file;
  std::vector<std::byte> header;
  Packer table;
  uint32_t arrays = 0;
  std::vector<std::byte> scratch;
};

BrickWriter::BrickWriter(const std::filesystem::path& target, const std::string& attempt,
                         const std::string& unit_key)
    : impl_(new Impl{{target, attempt}, MakeHeader(unit_key), {}, 0, {}}) {
  impl_->file.Write(impl_->header);
}

BrickWriter::~BrickWriter() = default;

void BrickWriter::Add(const BrickArray& array, const ConstView& data) {
  if (data.dtype != array.dtype || data.channels != array.channels ||
      data.shape != array.box.shape() || array.name.size() > kLongestName) {
    throw Error(Fault::kInternal, "brick array \"" + Printable(array.name, 80) + "\" of " +
                                      ToString(array.box) + " does not match its samples");
  }
  Packer& table = impl_->table;
  table.Put(static_cast<uint8_t>(array.name.size()));
  table.PutBytes(array.name.data(), array.name.size());
  table.Put(static_cast<uint8_t>(array.dtype));
  table.Put(array.channels);
  for (int axis = 0; axis < 3; ++axis) {
    table.Put(array.box.begin[axis]);
    table.Put(array.box.end[axis]);
  }
  ++impl_->arrays;
  const Blocking blocking(array);
  for (int64_t block = 0; block < blocking.count(); ++block) {
    const Box box = blocking.BoxOf(block);
    const ConstView part = data.Crop(box);
    const auto size = static_cast<size_t>(blocking.BytesOf(block));
    std::span<const std::byte> bytes(part.data, size);
    if (!IsDense(part, Layout::kInterleaved)) {
      impl_->scratch.resize(std::max(impl_->scratch.size(), size));
      CopyView(part, DenseView(impl_->scratch.data(), array.dtype, array.channels, box.shape(),
                               Layout::kInterleaved));
      bytes = std::span<const std::byte>(impl_->scratch).first(size);
    }
    table.Put(HashOf(bytes));
    impl_->file.Write(bytes);
  }
}

Published BrickWriter::Finish() {
  Packer table;
  table.Put(impl_->arrays);
  table.PutBytes(impl_->table.bytes().data(), impl_->table.bytes().size());
  const auto offset = static_cast<uint64_t>(impl_->file.position());
  Packer footer;
  footer.Put(offset);
  footer.Put(static_cast<uint64_t>(table.bytes().size()));
  footer.Put(TableHash(impl_->header, table.bytes(), offset));
  footer.PutBytes(kEndMagic, kMagicSize);
  impl_->file.Write(table.bytes());
  impl_->file.Write(footer.bytes());
  return impl_->file.Publish(Durability::kRename);
}

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
  const std::vector<std::byte> wanted = MakeHeader(unit_key);
  const int64_t body_end = file.size() - static_cast<int64_t>(kFooterSize);
  if (body_end < static_cast<int64_t>(kHeaderSize)) {
    Fail(std::to_string(file.size()) + " bytes are too few for any brick");
  }
  std::array<std::byte, kHeaderSize> header;
  std::array<std::byte, kFooterSize> footer;
  ReadAt(0, header);
  ReadAt(body_end, footer);
  if (std::memcmp(header.data(), kMagic, kMagicSize) != 0) Fail("it does not begin as a brick");
  if (!std::equal(header.begin(), header.end(), wanted.begin(), wanted.end())) {
    Fail("it was written for another unit or by another version");
  }
  Unpacker end(footer);
  const auto table_offset = end.Get<uint64_t>();
  const auto table_size = end.Get<uint64_t>();
  const auto table_hash = end.Get<uint64_t>();
  if (end.GetText(kMagicSize) != kEndMagic) Fail("its end is missing");
  // The table must fill the space between the blocks and the footer: this also bounds its size by
  // that of the file before anything is allocated.
  const auto limit = static_cast<uint64_t>(body_end);
  if (table_offset < kHeaderSize || table_offset > limit || table_size != limit - table_offset) {
    Fail("its size of " + std::to_string(file.size()) + " bytes is not what its end says");
  }
  std::vector<std::byte> table(table_size);
  ReadAt(static_cast<int64_t>(table_offset), table);
  if (TableHash(header, table, table_offset) != table_hash) {
    Fail("the checksum of its table is wrong");
  }
  LoadTable(table, static_cast<int64_t>(table_offset));
}

void BrickReader::Impl::LoadTable(std::span<const std::byte> table, int64_t blocks_end) {
  Unpacker in(table);
  const auto count = in.Get<uint32_t>();
  auto offset = static_cast<int64_t>(kHeaderSize);
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
    const std::optional<int64_t> bytes = CheckedBytes(array);
    if (in.failed() || !bytes || *bytes > blocks_end - offset) Fail("its table makes no sense");
    const auto blocks = static_cast<uint64_t>(Blocking(array).count());
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
  const int64_t offset = stored[index].offset + Blocking(arrays[index]).OffsetOf(block);
  ReadAt(offset, into);
  if (HashOf(into) != stored[index].hashes[static_cast<size_t>(block)]) {
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
  const Blocking blocking(*array);
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
    const Blocking blocking(array);
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
