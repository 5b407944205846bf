#include "io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <string>

#include "io/byte_order.h"
#include "io/container.h"

namespace tilery {
namespace {

constexpr int kLevel = 4;
constexpr int kGzipWindow = 15 + 16;  // zlib's way to ask for gzip framing
constexpr int kRawWindow = -15;
constexpr size_t kBlock = 1 << 20;
constexpr size_t kDictionary = 32 << 10;

[[noreturn]] void NoMemory() { throw Error(Fault::kTransient, "zlib has no memory"); }

// One block of raw deflate data that ends on a byte boundary.
std::vector<Bytef> DeflateBlock(std::span<const std::byte> dictionary,
                                std::span<const std::byte> block, bool last) {
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kRawWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    NoMemory();
  if (!dictionary.empty()) {
    deflateSetDictionary(&stream, reinterpret_cast<const Bytef*>(dictionary.data()),
                         static_cast<uInt>(dictionary.size()));
  }
  std::vector<Bytef> out(deflateBound(&stream, static_cast<uLong>(block.size())) + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(block.data()));
  stream.avail_in = static_cast<uInt>(block.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int rc = deflate(&stream, last ? Z_FINISH : Z_SYNC_FLUSH);
  const bool whole = stream.avail_in == 0 && rc == (last ? Z_STREAM_END : Z_OK);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (!whole) throw Error(Fault::kInternal, "zlib left a block unfinished");
  return out;
}

}  // namespace

GzipInput::GzipInput(const InputFile& file)
    : file_(file), input_(file), stream_(std::make_unique<z_stream_s>()) {
  if (inflateInit2(stream_.get(), kGzipWindow) != Z_OK) NoMemory();
}

GzipInput::~GzipInput() { inflateEnd(stream_.get()); }

void GzipInput::Fail(const std::string& why) {
  ThrowInput(file_.path(), "damaged gzip data: " + why + " (near byte " +
                               std::to_string(input_.position() - stream_->avail_in) + " of " +
                               std::to_string(file_.size()) + ", after " +
                               std::to_string(position_) + " decoded bytes)");
}

bool GzipInput::Refill() {
  if (stream_->avail_in > 0) return true;
  const auto next = input_.Next();
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(next.data()));
  stream_->avail_in = static_cast<uInt>(next.size());
  return !next.empty();
}

size_t GzipInput::Read(std::span<std::byte> into) {
  constexpr size_t kAtOnce = size_t{1} << 30;  // zlib counts in 32 bits
  size_t done = 0;
  while (done < into.size()) {
    const bool more = Refill();
    if (member_ended_) {
      if (!more) break;
      if (stream_->next_in[0] == 0) {  // padding to a block of a tape or disk
        ++stream_->next_in;
        --stream_->avail_in;
        continue;
      }
      if (inflateReset(stream_.get()) != Z_OK) NoMemory();
      member_ended_ = false;
    }
    if (!more) Fail("it ends too early");
    const size_t room = std::min(kAtOnce, into.size() - done);
    stream_->next_out = reinterpret_cast<Bytef*>(into.data() + done);
    stream_->avail_out = static_cast<uInt>(room);
    const int rc = inflate(stream_.get(), Z_NO_FLUSH);
    const size_t got = room - stream_->avail_out;
    done += got;
    position_ += static_cast<int64_t>(got);
    if (rc == Z_STREAM_END) {
      member_ended_ = true;
    } else if (rc == Z_MEM_ERROR) {
      NoMemory();
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
      Fail(stream_->msg == nullptr ? "it can't be decoded" : stream_->msg);
    }
  }
  return done;
}

std::vector<std::byte> GunzipHead(std::span<const std::byte> head) {
  constexpr auto kMagic0 = std::byte{0x1F}, kMagic1 = std::byte{0x8B};
  if (head.size() < 18 || head[0] != kMagic0 || head[1] != kMagic1) return {};
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) NoMemory();
  std::vector<std::byte> out(kSniffBytes);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(head.data()));
  stream.avail_in = static_cast<uInt>(head.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

GzipOutput::GzipOutput(OutputFile& file, ThreadPool* pool)
    : file_(file),
      crc_(static_cast<uint32_t>(crc32(0, nullptr, 0))),
      blocks_(pool, PiecesAhead(pool, kBlock)) {
  // Magic, deflate, no flags, no time, no hint on effort, "unknown" system.
  static constexpr std::array<unsigned char, 10> kHeader = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255};
  file_.Write(std::as_bytes(std::span(kHeader)));
}

void GzipOutput::Write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    // One byte beyond the block shows that it is not the last one of the file.
    const size_t room = dictionary_ + kBlock + 1 - pending_.size();
    const auto part = bytes.first(std::min(room, bytes.size()));
    crc_ = static_cast<uint32_t>(
        crc32(crc_, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size())));
    pending_.insert(pending_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (pending_.size() == dictionary_ + kBlock + 1) Submit(false);
  }
}

void GzipOutput::Submit(bool last) {
  const size_t end = std::min(pending_.size(), dictionary_ + kBlock);
  auto data = std::make_shared<std::vector<std::byte>>(
      pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(end));
  while (blocks_.full()) WriteOldest();
  blocks_.Add([data, dictionary = dictionary_, last] {
    const std::span<const std::byte> all(*data);
    return DeflateBlock(all.first(dictionary), all.subspan(dictionary), last);
  });
  dictionary_ = std::min(end, kDictionary);
  pending_.erase(pending_.begin(),
                 pending_.begin() + static_cast<std::ptrdiff_t>(end - dictionary_));
}

void GzipOutput::WriteOldest() {
  const std::vector<Bytef> block = blocks_.Take();
  file_.Write(std::as_bytes(std::span(block)));
}

void GzipOutput::Finish() {
  Submit(true);
  while (!blocks_.empty()) WriteOldest();
  std::array<std::byte, 8> trailer;
  Store(trailer.data(), crc_, false);
  Store(trailer.data() + 4, static_cast<uint32_t>(bytes_), false);
  file_.Write(trailer);
}

}  // namespace tilery
