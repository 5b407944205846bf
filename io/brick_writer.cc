#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "io/brick.h"
#include "io/brick_layout.h"
#include "io/error.h"
#include "io/hash.h"

namespace tilery {
namespace {

constexpr size_t kLongestName = 255;  // its length is stored in a byte

}  // namespace

struct BrickWriter::Impl {
  OutputFile file;
  std::vector<std::byte> header;
  BytePacker table;
  uint32_t arrays = 0;
  std::vector<std::byte> scratch;
};

BrickWriter::BrickWriter(const std::filesystem::path& target, const std::string& attempt,
                         const std::string& unit_key)
    : impl_(new Impl{{target, attempt}, MakeBrickHeader(unit_key), {}, 0, {}}) {
  impl_->file.Write(impl_->header);
}

BrickWriter::~BrickWriter() = default;

void BrickWriter::Add(const BrickArray& array, const ConstView& data) {
  if (data.dtype != array.dtype || data.channels != array.channels ||
      data.shape != array.box.shape() || array.name.size() > kLongestName) {
    throw Error(Fault::kInternal, "brick array \"" + Printable(array.name, 80) + "\" of " +
                                      ToString(array.box) + " does not match its samples");
  }
  BytePacker& table = impl_->table;
  table.Put(static_cast<uint8_t>(array.name.size()));
  table.PutBytes(array.name.data(), array.name.size());
  table.Put(static_cast<uint8_t>(array.dtype));
  table.Put(array.channels);
  for (int axis = 0; axis < 3; ++axis) {
    table.Put(array.box.begin[axis]);
    table.Put(array.box.end[axis]);
  }
  ++impl_->arrays;
  const BrickBlocking blocking(array);
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
    table.Put(ShortHash(bytes));
    impl_->file.Write(bytes);
  }
}

Published BrickWriter::Finish() {
  BytePacker table;
  table.Put(impl_->arrays);
  table.PutBytes(impl_->table.bytes().data(), impl_->table.bytes().size());
  const auto offset = static_cast<uint64_t>(impl_->file.position());
  BytePacker footer;
  footer.Put(offset);
  footer.Put(static_cast<uint64_t>(table.bytes().size()));
  footer.Put(BrickTableHash(impl_->header, table.bytes(), offset));
  footer.PutBytes(kBrickEndMagic, kBrickMagicSize);
  impl_->file.Write(table.bytes());
  impl_->file.Write(footer.bytes());
  return impl_->file.Publish(Durability::kRename);
}

}  // namespace tilery
