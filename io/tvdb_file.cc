#include "io/tvdb_file.h"

#include <algorithm>
#include <cstring>

#include "io/byte_packer.h"
#include "io/container.h"
#include "io/hash.h"

namespace tilery {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {0x8a, 'T', 'V', 'D', 'B', '\r', '\n', 0x1a};
constexpr int64_t kHeaderBytes = 16, kEntryBytes = 36, kFooterBytes = 32;

std::array<uint8_t, 8> MagicBackwards() {
  auto magic = kMagic;
  std::reverse(magic.begin(), magic.end());
  return magic;
}

void PutHeader(BytePacker* bytes) {
  bytes->PutBytes(kMagic.data(), kMagic.size());
  bytes->Put(TvdbFile::kVersion);
  bytes->Put(uint32_t{0});
}

uint64_t HashWithHeader(std::span<const std::byte> index) {
  BytePacker both;
  PutHeader(&both);
  both.PutBytes(index.data(), index.size());
  return ShortHash(both.bytes());
}

}  // namespace

// ---- writing ----

TvdbWriter::TvdbWriter(OutputFile& out) : out_(out) {
  BytePacker header;
  PutHeader(&header);
  out_.Write(header.bytes());
}

void TvdbWriter::Add(uint32_t kind, uint32_t grid, const std::array<int32_t, 3>& origin,
                     std::span<const std::byte> bytes) {
  pieces_.push_back(
      {kind, grid, origin, out_.position(), static_cast<int64_t>(bytes.size()), ShortHash(bytes)});
  out_.Write(bytes);
}

void TvdbWriter::Finish() {
  BytePacker end;
  for (const TvdbPiece& piece : pieces_) {
    end.Put(piece.kind);
    end.Put(piece.grid);
    for (const int32_t at : piece.origin) end.Put(at);
    end.Put(piece.bytes);
    end.Put(piece.hash);
  }
  const uint64_t index_bytes = end.bytes().size();
  const uint64_t hash = HashWithHeader(end.bytes());
  end.Put(index_bytes);
  end.Put(hash);
  end.Put(static_cast<uint64_t>(out_.position()) + index_bytes + kFooterBytes);
  const auto magic = MagicBackwards();
  end.PutBytes(magic.data(), magic.size());
  out_.Write(end.bytes());
}

// ---- reading ----

bool IsTvdbFile(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<uint8_t, 8> magic{};
  return file.ReadSome(0, std::as_writable_bytes(std::span(magic))) == magic.size() &&
         magic == kMagic;
}

void TvdbFile::Fail(const std::string& why) const {
  ThrowInput(file_.path(), "damaged .tvdb file: " + why);
}

TvdbFile::TvdbFile(const std::filesystem::path& path) : file_(path) {
  std::vector<std::byte> bytes(kHeaderBytes);
  const size_t there = file_.ReadSome(0, bytes);
  if (there < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    ThrowInput(path, "this is no .tvdb file");
  if (file_.size() < kHeaderBytes + kFooterBytes) Fail("it ends early");
  ByteUnpacker header(std::span<const std::byte>(bytes).subspan(kMagic.size()));
  const auto version = header.Get<uint32_t>();
  if (version != kVersion) {
    ThrowInput(path, "version " + std::to_string(version) +
                         " of the .tvdb format; this program reads " + std::to_string(kVersion) +
                         ": use the Tilery that wrote it, or a newer one");
  }
  if (header.Get<uint32_t>() != 0) Fail("its header has changed");

  bytes.resize(kFooterBytes);
  file_.ReadAt(file_.size() - kFooterBytes, bytes);
  ByteUnpacker footer(bytes);
  const auto index_bytes = footer.Get<uint64_t>(), hash = footer.Get<uint64_t>(),
             size = footer.Get<uint64_t>();
  const auto magic = MagicBackwards();
  if (std::memcmp(bytes.data() + kFooterBytes - magic.size(), magic.data(), magic.size()) != 0)
    Fail("it ends early, or with something else");
  const auto room = static_cast<uint64_t>(file_.size() - kHeaderBytes - kFooterBytes);
  if (size != static_cast<uint64_t>(file_.size()) || index_bytes > room ||
      index_bytes % kEntryBytes != 0) {
    Fail("it has " + std::to_string(file_.size()) + " bytes and says " + std::to_string(size) +
         ", with an index of " + std::to_string(index_bytes));
  }
  bytes.resize(index_bytes);
  const int64_t pieces_end = file_.size() - kFooterBytes - static_cast<int64_t>(index_bytes);
  file_.ReadAt(pieces_end, bytes);
  if (HashWithHeader(bytes) != hash) Fail("its index has changed");

  int64_t at = kHeaderBytes;
  for (ByteUnpacker index(bytes); index.left() > 0;) {
    TvdbPiece piece;
    piece.kind = index.Get<uint32_t>();
    piece.grid = index.Get<uint32_t>();
    for (int32_t& place : piece.origin) place = index.Get<int32_t>();
    piece.bytes = index.Get<int64_t>();
    piece.hash = index.Get<uint64_t>();
    piece.offset = at;
    if (piece.bytes < 0 || piece.bytes > pieces_end - at) Fail("a piece beyond its end");
    at += piece.bytes;
    pieces_.push_back(piece);
  }
  if (at != pieces_end) Fail("bytes that belong to no piece");
}

std::vector<std::byte> TvdbFile::Read(const TvdbPiece& piece) const {
  std::vector<std::byte> bytes(static_cast<size_t>(piece.bytes));
  file_.ReadAt(piece.offset, bytes);
  if (ShortHash(bytes) != piece.hash) {
    std::string place;
    for (const int32_t at : piece.origin) place += (place.empty() ? "" : ", ") + std::to_string(at);
    Fail("the " + std::to_string(piece.bytes) + " bytes at " + std::to_string(piece.offset) +
         " have changed: a piece of kind " + std::to_string(piece.kind) + " of grid " +
         std::to_string(piece.grid) + " at " + place);
  }
  return bytes;
}

}  // namespace tilery
