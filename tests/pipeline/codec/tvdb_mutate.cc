#include "tests/pipeline/codec/tvdb_mutate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/hash.h"
#include "pipeline/codec/grid_pieces.h"

namespace tilery {
namespace {

constexpr std::string_view kMagic = "\x8aTVDB\r\n\x1a";
constexpr size_t kHeader = 16, kEntry = 36, kFooter = 32;

template <typename T>
void Append(std::string* to, T value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}
std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class Mutator {
 public:
  explicit Mutator(std::mt19937& random) : random_(random) {}

  std::string Run(const std::string& content) {
    TvdbParts parts;
    if (Below(20) == 0 || !TakeApart(content, &parts) || parts.pieces.empty()) {
      std::string raw = content;
      ChangeBytes(&raw);
      return raw;
    }
    for (size_t changes = 1 + Below(3); changes > 0; --changes) {
      if (parts.pieces.empty()) break;
      const size_t at = Below(parts.pieces.size());
      TvdbParts::Piece& piece = parts.pieces[at];
      switch (Below(8)) {
        case 0:
          ChangeIndex(at, &parts);
          break;
        case 1:
        case 2:
          if (ChangeGrid(&piece.bytes)) break;
          [[fallthrough]];
        default:
          ChangeBytes(&piece.bytes);
      }
    }
    return parts.Together();
  }

 private:
  size_t Below(size_t most) { return most == 0 ? 0 : random_() % most; }

  // Numbers at which something begins or ends.
  uint64_t Edge() {
    constexpr uint64_t kEdges[] = {0,
                                   1,
                                   2,
                                   7,
                                   8,
                                   127,
                                   128,
                                   255,
                                   256,
                                   4095,
                                   4096,
                                   65535,
                                   1u << 26,
                                   0x7fffffff,
                                   0x80000000,
                                   0xfffffff8,
                                   0xffffffff,
                                   uint64_t{1} << 32,
                                   uint64_t{1} << 63};
    return kEdges[Below(std::size(kEdges))] + (Below(4) == 0 ? Below(3) - 1 : 0);
  }
  double Number() {
    constexpr double kMost = std::numeric_limits<double>::max();
    const double numbers[] = {0.0,
                              -0.0,
                              1,
                              -1,
                              1e-310,
                              1e-40,
                              1e-3,
                              0.5,
                              65504,
                              65520,
                              1e30,
                              3e38,
                              4e38,
                              kMost,
                              -kMost,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
    return numbers[Below(std::size(numbers))];
  }

  void ChangeBytes(std::string* bytes) {
    if (bytes->empty()) {
      bytes->assign(1 + Below(8), static_cast<char>(random_()));
      return;
    }
    const size_t at = Below(bytes->size());
    // Early bytes decide about all that follows.
    const size_t late = std::max(at, Below(bytes->size()));
    switch (Below(7)) {
      case 0:
      case 1:
        (*bytes)[late] ^= static_cast<char>(1 << Below(8));
        return;
      case 2:
        (*bytes)[at] = static_cast<char>(random_());
        return;
      case 3: {
        const uint64_t edge = Edge();
        std::memcpy(&(*bytes)[at], &edge, std::min(bytes->size() - at, size_t{1} << Below(4)));
        return;
      }
      case 4: {
        const double number = Number();
        std::memcpy(&(*bytes)[at], &number, std::min(bytes->size() - at, sizeof number));
        return;
      }
      case 5:
        bytes->erase(late, 1 + Below(Below(4) == 0 ? 64 : 4));
        return;
      default: {
        const std::string part = bytes->substr(Below(bytes->size()), 1 + Below(40));
        Below(2) == 0 ? bytes->insert(late, part) : bytes->replace(late, part.size(), part);
      }
    }
  }

  void ChangeIndex(size_t at, TvdbParts* parts) {
    TvdbParts::Piece& piece = parts->pieces[at];
    switch (Below(6)) {
      case 0:
        piece.kind = static_cast<uint32_t>(Below(6));
        return;
      case 1:
        piece.grid =
            Below(3) == 0 ? static_cast<uint32_t>(Edge()) : static_cast<uint32_t>(Below(5));
        return;
      case 2:
        piece.origin[Below(3)] = static_cast<int32_t>(Below(2) == 0 ? Edge() : 128 * Below(64));
        return;
      case 3:
        parts->pieces.erase(parts->pieces.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 4:
        parts->pieces.push_back(piece);
        return;
      default:
        std::swap(piece.bytes, parts->pieces[Below(parts->pieces.size())].bytes);
    }
  }

  // A description of a grid, in which one thing is another.
  bool ChangeGrid(std::string* bytes) {
    GridPiece piece;
    try {
      piece = UnpackGrid(BytesOf(*bytes));
    } catch (const Error&) {
      return false;
    }
    RegionCoding& coding = piece.coding;
    const char* const types[] = {"Tree_float_5_4_3", "Tree_double_5_4_3", "Tree_vec3s_5_4_3",
                                 "Tree_vec3d_5_4_3", "Tree_bool_5_4_3",   ""};
    const auto value = [&](std::string* text) {
      if (text->empty()) return;
      const double number = Number();
      const auto single = static_cast<float>(number);
      const bool wide = coding.numbers.dtype == DType::kF64;
      std::memcpy(text->data(),
                  wide ? static_cast<const void*>(&number) : static_cast<const void*>(&single),
                  std::min(text->size(), wide ? sizeof number : sizeof single));
    };
    switch (Below(14)) {
      case 0:
        piece.how = static_cast<GridPiece::How>(Below(4));
        break;
      case 1:
        piece.about.type = types[Below(std::size(types))];
        break;
      case 2:
        piece.about.half = !piece.about.half;
        break;
      case 3:
        piece.about.twin_of = Below(2) == 0 ? piece.about.stored : "density";
        break;
      case 4:
        piece.about.transform.type = Below(2) == 0 ? "NonlinearFrustumMap" : "AffineMap";
        break;
      case 5:
        value(&coding.background);
        break;
      case 6:
        coding.step = Number();
        break;
      case 7:
        coding.bound = Number();
        break;
      case 8:
        coding.limit = coding.limit > 0 ? 0 : 1;
        break;
      case 9:
        for (ValueWeights& weights : coding.weights)
          weights[Below(weights.size())] = static_cast<int16_t>(Edge());
        for (ContextComponent& component : coding.contexts)
          component.weights[Below(kContextTerms)] = static_cast<int16_t>(Edge());
        break;
      case 10:
        for (ContextComponent& component : coding.contexts)
          (Below(2) == 0 ? component.least : component.most) = static_cast<int32_t>(Edge());
        break;
      case 11:
        if (piece.root_tiles.empty() || Below(3) == 0) {
          piece.root_tiles.push_back({{}, coding.background, Below(2) == 0});
        } else {
          VdbRootTile& tile = piece.root_tiles[Below(piece.root_tiles.size())];
          Below(2) == 0 ? value(&tile.value)
                        : void(tile.origin[Below(3)] = static_cast<int32_t>(Edge()));
        }
        break;
      case 12:
        piece.uppers = static_cast<uint32_t>(Below(3) == 0 ? Edge() : piece.uppers + Below(3) - 1);
        break;
      default: {
        std::string stream(reinterpret_cast<const char*>(piece.upper_stream.data()),
                           piece.upper_stream.size());
        ChangeBytes(&stream);
        const auto changed = BytesOf(stream);
        piece.upper_stream.assign(changed.begin(), changed.end());
      }
    }
    const std::vector<std::byte> packed = PackGrid(piece);
    bytes->assign(reinterpret_cast<const char*>(packed.data()), packed.size());
    return true;
  }

  std::mt19937& random_;
};

}  // namespace

std::string TvdbParts::Together() const {
  std::string content(kMagic);
  Append(&content, TvdbFile::kVersion);
  Append(&content, uint32_t{0});
  std::string index;
  for (const Piece& piece : pieces) {
    content += piece.bytes;
    Append(&index, piece.kind);
    Append(&index, piece.grid);
    for (const int32_t at : piece.origin) Append(&index, at);
    Append(&index, static_cast<int64_t>(piece.bytes.size()));
    Append(&index, ShortHash(BytesOf(piece.bytes)));
  }
  const uint64_t hash = ShortHash(BytesOf(content.substr(0, kHeader) + index));
  content += index;
  Append(&content, static_cast<uint64_t>(index.size()));
  Append(&content, hash);
  Append(&content, static_cast<uint64_t>(content.size() + kFooter - 2 * sizeof hash));
  content.append(kMagic.rbegin(), kMagic.rend());
  return content;
}

bool TakeApart(const std::string& content, TvdbParts* parts) {
  if (content.size() < kHeader + kFooter) return false;
  ByteUnpacker footer(BytesOf(content).last(kFooter));
  const auto index_bytes = footer.Get<uint64_t>();
  if (index_bytes > content.size() - kHeader - kFooter || index_bytes % kEntry != 0) return false;
  const size_t end = content.size() - kFooter - index_bytes;
  size_t at = kHeader;
  for (ByteUnpacker index(BytesOf(content).subspan(end, index_bytes)); index.left() > 0;) {
    TvdbParts::Piece piece;
    piece.kind = index.Get<uint32_t>();
    piece.grid = index.Get<uint32_t>();
    for (int32_t& place : piece.origin) place = index.Get<int32_t>();
    const auto size = index.Get<uint64_t>();
    index.Get<uint64_t>();
    if (size > end - at) return false;
    piece.bytes = content.substr(at, size);
    at += size;
    parts->pieces.push_back(std::move(piece));
  }
  return true;
}

std::string MutateTvdb(const std::string& content, size_t most, std::mt19937& random) {
  std::string changed = Mutator(random).Run(content);
  if (changed.size() > most) changed.resize(most);
  return changed;
}

}  // namespace tilery
