#include "pipeline/codec/grid_pieces.h"

#include <bit>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "io/byte_packer.h"
#include "io/error.h"
#include "pipeline/codec/context_network.h"
#include "pipeline/codec/vq_model.h"

namespace tilery {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(Fault::kInput, "a description of a grid " + why);
}

std::string Hex(uint64_t number) {
  std::ostringstream text;
  text << std::hex << std::setfill('0') << std::setw(16) << number;
  return text.str();
}

void PutText(BytePacker* out, const std::string& text) {
  out->Put(static_cast<uint32_t>(text.size()));
  out->PutBytes(text.data(), text.size());
}
void PutNumber(BytePacker* out, double number) { out->Put(std::bit_cast<uint64_t>(number)); }
void PutMetadata(BytePacker* out, const std::vector<VdbMeta>& all) {
  out->Put(static_cast<uint32_t>(all.size()));
  for (const VdbMeta& meta : all) {
    PutText(out, meta.name);
    PutText(out, meta.type);
    PutText(out, meta.value);
  }
}

// Takes apart; an error if something is missing or left.
class Taker {
 public:
  explicit Taker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    const T value = bytes_.Get<T>();
    if (bytes_.failed()) Refuse("that ends early");
    return value;
  }
  double Number() { return std::bit_cast<double>(Get<uint64_t>()); }
  std::string Text() {
    const auto size = Get<uint32_t>();
    std::string text = bytes_.GetText(size);
    if (bytes_.failed()) Refuse("that ends early");
    return text;
  }
  // A count of things that take so many bytes each, at least.
  uint32_t Count(size_t least) {
    const auto count = Get<uint32_t>();
    if (count > bytes_.left() / least) Refuse("that claims more than it holds");
    return count;
  }
  std::vector<VdbMeta> Metadata() {
    std::vector<VdbMeta> all(Count(12));
    for (VdbMeta& meta : all) {
      meta.name = Text();
      meta.type = Text();
      meta.value = Text();
    }
    return all;
  }
  void End() const {
    if (bytes_.left() > 0) Refuse("that is followed by something");
  }

 private:
  ByteUnpacker bytes_;
};

// How whole numbers are coded.
enum class NumberCoding : uint8_t { kAdaptive = 0, kContext = 1 };

// The weights of a component that there are: of its neighbours, of as many components before it as
// there are, and of one.
template <typename Component, typename Use>
void ForWeights(Component& component, size_t index, const Use& use) {
  const size_t before = kContextCausal + index * kContextAround;
  for (size_t i = 0; i < kContextTerms; ++i) {
    if (i < before || i + 1 == kContextTerms) use(component.weights[i]);
  }
}

void PutCoding(BytePacker* out, const RegionCoding& coding) {
  const bool context = !coding.contexts.empty();
  out->Put(static_cast<uint8_t>(context ? NumberCoding::kContext : NumberCoding::kAdaptive));
  for (const ValueWeights& weights : coding.weights) {
    for (const int16_t weight : weights) out->Put(weight);
  }
  if (context) out->Put(ContextModelHash());
  for (size_t c = 0; c < coding.contexts.size(); ++c) {
    ForWeights(coding.contexts[c], c, [out](int16_t weight) { out->Put(weight); });
    out->Put(coding.contexts[c].least);
    out->Put(coding.contexts[c].most);
  }
  out->Put(static_cast<uint8_t>(coding.vq ? 1 : 0));
  if (!coding.vq) return;
  out->Put(VqModelHash());
  out->Put(coding.vq->least);
  out->Put(coding.vq->most);
  for (const ValueWeights& weights : coding.vq->residual) {
    for (const int16_t weight : weights) out->Put(weight);
  }
}

void TakeModel(Taker* in, const char* what, uint64_t ours) {
  if (const auto hash = in->Get<uint64_t>(); hash != ours) {
    Refuse(std::string("that was made with the ") + what + ' ' + Hex(hash) +
           ", not with this program's " + Hex(ours) + ": read it with the version that made it");
  }
}

void TakeVq(Taker* in, RegionCoding* coding) {
  if (in->Get<uint8_t>() == 0) return;
  TakeModel(in, "model of codes", VqModelHash());
  VqCoding& vq = coding->vq.emplace();
  vq.least = in->Get<int32_t>();
  vq.most = in->Get<int32_t>();
  if (vq.least > vq.most || vq.least < -kLargestCodedValue || vq.most > kLargestCodedValue)
    Refuse("whose codes stand for no numbers");
  if (coding->bound == 0) return;
  vq.residual.resize(static_cast<size_t>(coding->numbers.components));
  for (ValueWeights& weights : vq.residual) {
    for (int16_t& weight : weights) weight = in->Get<int16_t>();
  }
}

void TakeNumberCoding(Taker* in, RegionCoding* coding) {
  const auto components = static_cast<size_t>(coding->numbers.components);
  switch (static_cast<NumberCoding>(in->Get<uint8_t>())) {
    case NumberCoding::kAdaptive:
      coding->weights.resize(components);
      for (ValueWeights& weights : coding->weights) {
        for (int16_t& weight : weights) weight = in->Get<int16_t>();
      }
      return;
    case NumberCoding::kContext:
      TakeModel(in, "context model", ContextModelHash());
      if (components > kContextComponents) Refuse("of too many components");
      coding->contexts.resize(components);
      for (size_t c = 0; c < components; ++c) {
        ContextComponent& component = coding->contexts[c];
        component = {};
        ForWeights(component, c, [in](int16_t& weight) { weight = in->Get<int16_t>(); });
        component.least = in->Get<int32_t>();
        component.most = in->Get<int32_t>();
      }
      return;
  }
  Refuse("whose numbers are coded in an unknown way");
}

}  // namespace

size_t CodingBytes(const RegionCoding& coding) {
  BytePacker out;
  PutCoding(&out, coding);
  return out.bytes().size();
}

UpperWriter::UpperWriter(const RegionCoding& coding, GridPiece* piece)
    : piece_(piece), coder_(&piece->upper_stream), model_(VdbLevel::kUpper, coding.background) {}

void UpperWriter::Add(const VdbNode& node) {
  for (const int32_t at : node.origin) coder_.EncodeRaw(static_cast<uint32_t>(at), 32);
  model_.Encode(&coder_, node);
  ++piece_->uppers;
}

void UpperWriter::Finish() { coder_.Finish(); }

UpperReader::UpperReader(const GridPiece& piece)
    : left_(piece.uppers),
      coder_(piece.upper_stream),
      model_(VdbLevel::kUpper, piece.coding.background) {}

bool UpperReader::Next(VdbNode* node) {
  if (left_ == 0) return false;
  --left_;
  for (int32_t& at : node->origin) {
    at = static_cast<int32_t>(coder_.DecodeRaw(32));
    if (at % VdbEdge(VdbLevel::kUpper) != 0)
      throw Error(Fault::kInput, "an upper node at " + std::to_string(at));
  }
  model_.Decode(&coder_, node);
  return true;
}

std::vector<std::byte> PackFile(const FilePiece& piece) {
  BytePacker out;
  out.Put(piece.version);
  out.Put(piece.grids);
  PutMetadata(&out, piece.metadata);
  return {out.bytes().begin(), out.bytes().end()};
}

FilePiece UnpackFile(std::span<const std::byte> bytes) {
  Taker in(bytes);
  FilePiece piece;
  piece.version = in.Get<uint32_t>();
  piece.grids = in.Get<uint32_t>();
  piece.metadata = in.Metadata();
  in.End();
  return piece;
}

std::vector<std::byte> PackGrid(const GridPiece& piece) {
  BytePacker out;
  out.Put(static_cast<uint8_t>(piece.how));
  PutText(&out, piece.about.stored);
  PutText(&out, piece.about.type);
  out.Put(static_cast<uint8_t>(piece.about.half ? 1 : 0));
  PutText(&out, piece.about.twin_of);
  out.Put(piece.about.packing);
  PutMetadata(&out, piece.about.metadata);
  PutText(&out, piece.about.transform.type);
  PutText(&out, piece.about.transform.bytes);
  if (piece.how == GridPiece::How::kCoded) {
    PutText(&out, piece.coding.background);
    PutNumber(&out, piece.coding.bound);
    PutNumber(&out, piece.coding.step);
    out.Put(static_cast<uint8_t>(piece.coding.limit > 0 ? 1 : 0));
    PutCoding(&out, piece.coding);
    for (const double number : {piece.least, piece.most, piece.error.most, piece.error.squares})
      PutNumber(&out, number);
    out.Put(piece.error.numbers);
    out.Put(static_cast<uint32_t>(piece.root_tiles.size()));
    for (const VdbRootTile& tile : piece.root_tiles) {
      for (const int32_t at : tile.origin) out.Put(at);
      PutText(&out, tile.value);
      out.Put(static_cast<uint8_t>(tile.active ? 1 : 0));
    }
    out.Put(piece.uppers);
    out.Put(static_cast<uint32_t>(piece.upper_stream.size()));
    out.PutBytes(piece.upper_stream.data(), piece.upper_stream.size());
  }
  return {out.bytes().begin(), out.bytes().end()};
}

GridPiece UnpackGrid(std::span<const std::byte> bytes) {
  Taker in(bytes);
  GridPiece piece;
  const auto how = in.Get<uint8_t>();
  if (how > static_cast<uint8_t>(GridPiece::How::kTwin)) Refuse("of an unknown kind");
  piece.how = static_cast<GridPiece::How>(how);
  piece.about.stored = in.Text();
  piece.about.type = in.Text();
  piece.about.half = in.Get<uint8_t>() != 0;
  piece.about.twin_of = in.Text();
  piece.about.packing = in.Get<uint32_t>();
  piece.about.metadata = in.Metadata();
  piece.about.transform.type = in.Text();
  piece.about.transform.bytes = in.Text();
  if (!VdbIsMap(piece.about.transform)) Refuse("with a transform that is none");
  if (piece.how == GridPiece::How::kCoded) {
    const auto numbers = VdbNumbersOf(piece.about.type);
    if (!numbers) Refuse("of an unknown type");
    RegionCoding& coding = piece.coding;
    coding.numbers = *numbers;
    coding.half = piece.about.half;
    coding.background = in.Text();
    if (coding.background.size() != numbers->bytes()) Refuse("whose background has another size");
    coding.bound = in.Number();
    coding.step = in.Number();
    if (!(coding.bound >= 0) || !(coding.step >= 0) || !std::isfinite(coding.step))
      Refuse("with a bound that is none");
    if (in.Get<uint8_t>() != 0) coding.limit = LevelSetLimit(coding);
    TakeNumberCoding(&in, &coding);
    TakeVq(&in, &coding);
    for (double* number : {&piece.least, &piece.most, &piece.error.most, &piece.error.squares})
      *number = in.Number();
    piece.error.numbers = in.Get<int64_t>();
    piece.root_tiles.resize(in.Count(3 * 4 + 4 + numbers->bytes() + 1));
    for (VdbRootTile& tile : piece.root_tiles) {
      for (int32_t& at : tile.origin) at = in.Get<int32_t>();
      tile.value = in.Text();
      if (tile.value.size() != numbers->bytes()) Refuse("with a tile of another size");
      tile.active = in.Get<uint8_t>() != 0;
    }
    piece.uppers = in.Get<uint32_t>();
    const std::string stream = in.Text();
    const auto uppers = std::as_bytes(std::span(stream));
    piece.upper_stream.assign(uppers.begin(), uppers.end());
    // Each takes twelve bytes at least, for its origin; zeros at the end are left out.
    if (piece.uppers > stream.size() / 12 + 2) Refuse("that claims more than it holds");
  }
  in.End();
  return piece;
}

}  // namespace tilery
