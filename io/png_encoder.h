// Rows of a picture to the image data of a PNG, on all threads of a pool. Internal to io.
//
//   rows -> blocks of kBlockBytes or so -> [filter, deflate] -> one zlib stream -> IDAT chunks of
//   kDataChunk bytes -> [checksum] -> (file)
//
// What stands in brackets is done by the pool; the blocks are deflated each on its own and put
// together in order. Large pictures are written to the file by a thread of their own: with copying,
// it would be too much for the caller's to keep 16 others busy. Blocks and chunks are cut by the
// picture's shape alone, so the bytes depend neither on threads nor on bands. Every row is
// Paeth-filtered: adaptive filters make photographs 0 to 2 % smaller and cost three times as much.
// Not thread-safe. Source: the PNG specification, clauses 7, 9 and 10.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/format.h"
#include "io/ordered_work.h"
#include "io/thread_pool.h"

namespace tilery {

// Writes one whole chunk. `name` has 4 letters.
void WritePngChunk(OutputFile& file, std::string_view name, std::string_view content);

class PngEncoder {
 public:
  // `header`: u8 or u16. `file` and `pool` (null: all is done here) outlive this.
  PngEncoder(OutputFile& file, const Header& header, ThreadPool* pool);

  // The next rows of the picture, {1, n, width}. Errors of the pool's threads and of the file come
  // out here or in Finish, with the file's name; after one of them nothing more may be called.
  void Write(const ConstView& rows);
  void Finish();  // all rows were written

 private:
  struct Block {
    int64_t rows = 0;
    std::vector<std::byte> samples;   // the row above the first, then the rows
    std::vector<std::byte> filtered;  // each row after its filter's number
    std::vector<std::byte> packed;
    uint32_t adler = 1;  // of `filtered`
  };
  using BlockPtr = std::shared_ptr<Block>;
  using Chunk = std::vector<std::byte>;

  static constexpr int64_t kBlockBytes = 256 << 10;
  static constexpr int64_t kDataChunk = 256 << 10;
  static constexpr int64_t kLargePicture = 16 << 20;
  static constexpr size_t kWritesAhead = 16;

  void BeginBlock();
  void SubmitBlock();
  void Encode(Block& block) const;
  void TakeBlock();
  void Append(std::span<const std::byte> bytes);
  void BeginChunk();
  void SubmitChunk();
  void WriteOldestChunk();
  void TakeWrittenChunk();
  template <typename Result>
  Result Take(OrderedWork<Result>& work);

  OutputFile& file_;
  Header header_;
  int64_t row_bytes_, block_rows_;
  BlockPtr block_;                   // being filled
  std::vector<std::byte> last_row_;  // above the next block
  std::vector<BlockPtr> idle_;
  uint32_t adler_ = 1;
  Chunk chunk_;  // being filled
  std::vector<Chunk> idle_chunks_;
  std::unique_ptr<ThreadPool> disk_;  // one thread, or null
  // The last members: their pieces use the others.
  OrderedWork<BlockPtr> blocks_;
  OrderedWork<Chunk> chunks_;
  OrderedWork<Chunk> written_;
};

}  // namespace tilery
