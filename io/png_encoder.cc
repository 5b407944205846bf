#include "io/png_encoder.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <system_error>

#include "io/byte_order.h"
#include "io/container.h"
#include "io/png_filter.h"
#include "io/run_deflate.h"

namespace tilery {
namespace {

constexpr size_t kHeadBytes = 8;  // length and name
constexpr size_t kCrcBytes = 4;   // over name and content
constexpr std::string_view kData = "IDAT";

// Sets length and checksum of a chunk that has its name and content.
void Seal(std::vector<std::byte>* chunk) {
  const size_t content = chunk->size() - kHeadBytes;
  Store(chunk->data(), static_cast<uint32_t>(content), true);
  const auto* const name = reinterpret_cast<const Bytef*>(chunk->data() + 4);
  const uLong crc = crc32_z(crc32_z(0, nullptr, 0), name, content + 4);
  chunk->resize(chunk->size() + kCrcBytes);
  Store(chunk->data() + chunk->size() - kCrcBytes, static_cast<uint32_t>(crc), true);
}

void AppendBytes(std::vector<std::byte>* to, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

void WritePngChunk(OutputFile& file, std::string_view name, std::string_view content) {
  constexpr size_t kMost = 0x7FFFFFFF;
  if (content.size() > kMost) {
    throw Error(Fault::kOutput,
                InFile(file.target(), "the chunk " + std::string(name) + " would have " +
                                          std::to_string(content.size()) + " bytes, PNG holds " +
                                          std::to_string(kMost)));
  }
  std::vector<std::byte> chunk(4);
  AppendBytes(&chunk, name);
  AppendBytes(&chunk, content);
  Seal(&chunk);
  file.Write(chunk);
}

namespace {

// A thread that writes, or null where the system gives none: then whoever encodes writes too.
std::unique_ptr<ThreadPool> DiskThread() {
  try {
    return std::make_unique<ThreadPool>(1);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

}  // namespace

PngEncoder::PngEncoder(OutputFile& file, const Header& header, ThreadPool* pool)
    : file_(file),
      header_(header),
      row_bytes_(header.shape[2] * header.channels * static_cast<int64_t>(DTypeSize(header.dtype))),
      block_rows_(std::clamp<int64_t>(kBlockBytes / row_bytes_, 1, header.shape[1])),
      last_row_(static_cast<size_t>(row_bytes_)),
      disk_(pool != nullptr && row_bytes_ * header.shape[1] > kLargePicture ? DiskThread()
                                                                            : nullptr),
      // Samples with one row more, filtered, and packed.
      blocks_(pool, PiecesAhead(pool, (3 * block_rows_ + 1) * row_bytes_)),
      chunks_(pool, PiecesAhead(pool, kDataChunk)),
      written_(disk_.get(), disk_ == nullptr ? 1 : kWritesAhead) {
  BeginChunk();
  Append(kZlibHead);
}

void PngEncoder::Write(const ConstView& rows) {
  const int64_t count = rows.shape[1];
  for (int64_t row = 0; row < count;) {
    if (block_ == nullptr) BeginBlock();
    const int64_t taken = std::min(count - row, block_rows_ - block_->rows);
    const View to =
        DenseView(block_->samples.data() + (1 + block_->rows) * row_bytes_, header_.dtype,
                  header_.channels, {1, taken, header_.shape[2]}, Layout::kInterleaved);
    CopyView(rows.Crop({{0, row, 0}, {1, row + taken, header_.shape[2]}}), to);
    block_->rows += taken;
    row += taken;
    if (block_->rows == block_rows_) SubmitBlock();
  }
}

void PngEncoder::Finish() {
  if (block_ != nullptr) SubmitBlock();
  while (!blocks_.empty()) TakeBlock();
  Append(kLastBlock);
  std::array<std::byte, 4> adler;
  Store(adler.data(), adler_, true);
  Append(adler);
  if (chunk_.size() > kHeadBytes) SubmitChunk();
  while (!chunks_.empty()) WriteOldestChunk();
  while (!written_.empty()) TakeWrittenChunk();
}

void PngEncoder::BeginBlock() {
  if (idle_.empty()) {
    block_ = std::make_shared<Block>();
    block_->samples.resize(static_cast<size_t>((1 + block_rows_) * row_bytes_));
  } else {
    block_ = std::move(idle_.back());
    idle_.pop_back();
  }
  block_->rows = 0;
  std::copy(last_row_.begin(), last_row_.end(), block_->samples.begin());
}

void PngEncoder::SubmitBlock() {
  const auto last = block_->samples.begin() + block_->rows * row_bytes_;
  std::copy(last, last + row_bytes_, last_row_.begin());
  while (blocks_.full()) TakeBlock();
  blocks_.Add([this, block = std::move(block_)] {
    Encode(*block);
    return block;
  });
  block_ = nullptr;
}

// On a thread of the pool: reads nothing of this object that changes.
void PngEncoder::Encode(Block& block) const {
  const auto row_bytes = static_cast<size_t>(row_bytes_);
  const auto rows = static_cast<size_t>(block.rows);
  const std::span<std::byte> samples = std::span(block.samples).first((1 + rows) * row_bytes);
  const size_t size = DTypeSize(header_.dtype);
  if (size > 1) SwapSamples(samples.data(), samples.size() / size, size);
  block.filtered.resize(rows * (1 + row_bytes));
  const size_t pixel = static_cast<size_t>(header_.channels) * size;
  for (size_t y = 0; y < rows; ++y) {
    const std::span<std::byte> out =
        std::span(block.filtered).subspan(y * (1 + row_bytes), 1 + row_bytes);
    out[0] = kPngPaeth;
    FilterPaeth(samples.subspan((1 + y) * row_bytes, row_bytes),
                samples.subspan(y * row_bytes, row_bytes), pixel, out.subspan(1));
  }
  block.adler = static_cast<uint32_t>(
      adler32_z(1, reinterpret_cast<const Bytef*>(block.filtered.data()), block.filtered.size()));
  RunDeflater().Deflate(block.filtered, &block.packed);
}

void PngEncoder::TakeBlock() {
  BlockPtr block = Take(blocks_);
  adler_ = static_cast<uint32_t>(
      adler32_combine(adler_, block->adler, static_cast<z_off_t>(block->filtered.size())));
  Append(block->packed);
  idle_.push_back(std::move(block));
}

void PngEncoder::Append(std::span<const std::byte> bytes) {
  constexpr size_t kFull = kHeadBytes + kDataChunk;
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), kFull - chunk_.size());
    chunk_.insert(chunk_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (chunk_.size() == kFull) SubmitChunk();
  }
}

void PngEncoder::BeginChunk() {
  if (!idle_chunks_.empty()) {
    chunk_ = std::move(idle_chunks_.back());
    idle_chunks_.pop_back();
  }
  chunk_.clear();
  chunk_.reserve(kHeadBytes + kDataChunk + kCrcBytes);
  chunk_.resize(4);
  AppendBytes(&chunk_, kData);
}

void PngEncoder::SubmitChunk() {
  while (chunks_.full()) WriteOldestChunk();
  auto chunk = std::make_shared<Chunk>(std::move(chunk_));
  chunks_.Add([chunk] {
    Seal(chunk.get());
    return std::move(*chunk);
  });
  BeginChunk();
}

void PngEncoder::WriteOldestChunk() {
  auto chunk = std::make_shared<Chunk>(Take(chunks_));
  while (written_.full()) TakeWrittenChunk();
  written_.Add([this, chunk] {
    file_.Write(*chunk);
    return std::move(*chunk);
  });
}

void PngEncoder::TakeWrittenChunk() { idle_chunks_.push_back(Take(written_)); }

template <typename Result>
Result PngEncoder::Take(OrderedWork<Result>& work) {
  try {
    return work.Take();
  } catch (const std::bad_alloc&) {
    throw Error(Fault::kTransient,
                InFile(file_.target(), "out of memory while its rows were encoded"));
  }
}

}  // namespace tilery
