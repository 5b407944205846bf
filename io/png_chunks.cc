#include "io/png_chunks.h"

#include <zlib.h>

#include <algorithm>

#include "io/byte_order.h"
#include "io/container.h"

namespace tilery {
namespace {

constexpr int64_t kMagicBytes = 8;
constexpr int64_t kHeadBytes = 8;    // length and name
constexpr int64_t kFrameBytes = 12;  // with the checksum
constexpr char kData[] = "IDAT";

}  // namespace

PngChunks::Head8 PngChunks::HeadAt(int64_t at) const {
  char head[kHeadBytes];
  if (at < 0 || at > file_.size() - kFrameBytes) return {};
  if (file_.ReadSome(at, std::as_writable_bytes(std::span(head))) != sizeof head) return {};
  const int64_t size = LoadBig<uint32_t>(head);
  if (size > file_.size() - kFrameBytes - at) return {};
  return {size, std::string(head + 4, 4)};
}

bool PngChunks::Next() {
  const bool was_data = name_ == kData;
  after_data_ = after_data_ || was_data;
  at_ = at_ == 0 ? kMagicBytes : at_ + kFrameBytes + size_;
  Head8 head = HeadAt(at_);
  if (head.size < 0) return false;
  size_ = head.size;
  name_ = std::move(head.name);
  if (name_ == kData && !was_data) LeaveOutEqualData();
  return true;
}

// On to the last data chunk that lies a multiple of this one's length behind it and is as long. The
// true ones are the first so many multiples; that compressed samples look like such a header at a
// later one is as good as impossible, and would cost no more than metadata.
void PngChunks::LeaveOutEqualData() {
  const int64_t step = size_ + kFrameBytes;
  const auto equal = [&](int64_t steps) {
    const Head8 head = HeadAt(at_ + steps * step);
    return head.size == size_ && head.name == kData;
  };
  int64_t low = 0, high = (file_.size() - at_) / step;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (equal(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  at_ += low * step;
}

std::string PngChunks::Head(int64_t bytes) const {
  std::string head(static_cast<size_t>(std::min(bytes, size_)), '\0');
  file_.ReadAt(at_ + kHeadBytes, std::as_writable_bytes(std::span(head)));
  return head;
}

std::string PngChunks::Content() const {
  std::string content(static_cast<size_t>(size_), '\0');
  char crc[4];
  file_.ReadAt(at_ + kHeadBytes, std::as_writable_bytes(std::span(content)));
  file_.ReadAt(at_ + kHeadBytes + size_, std::as_writable_bytes(std::span(crc)));
  const auto update = [](uLong sum, const std::string& bytes) {
    return crc32(sum, reinterpret_cast<const Bytef*>(bytes.data()),
                 static_cast<uInt>(bytes.size()));
  };
  if (update(update(crc32(0, nullptr, 0), name_), content) != LoadBig<uint32_t>(crc)) {
    ThrowInput(file_.path(), "damaged PNG: wrong checksum of the chunk " + Printable(name_) +
                                 " at byte " + std::to_string(at_));
  }
  return content;
}

}  // namespace tilery
