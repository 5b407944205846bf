// NumPy's .npy, versions 1 to 3. Source: numpy.lib.format.
//
// Rank 2 is a picture y,x; rank 3 a volume z,y,x; rank 4 a volume c,z,y,x; more or less is refused.
// Written as rank 2 or 3, or as rank 4 where there are several channels; always in C order.
#include <algorithm>
#include <cstring>
#include <optional>

#include "io/array_file.h"
#include "io/byte_order.h"
#include "io/container.h"

namespace tilery {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr size_t kHeaderLimit = 1 << 20;  // of the text that describes the array

// The text after `'key':` in the Python dictionary that describes the array, up to the comma that
// ends it (commas inside brackets or quotes do not).
std::optional<std::string> ValueOf(const std::string& dict, const std::string& key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + key + quote;
    size_t at = dict.find(quoted);
    if (at == std::string::npos) continue;
    at = dict.find(':', at + quoted.size());
    if (at == std::string::npos) return {};
    std::string value;
    int depth = 0;
    char open_quote = 0;
    for (const char c : dict.substr(at + 1)) {
      if (open_quote != 0) {
        if (c == open_quote) open_quote = 0;
      } else if (c == '\'' || c == '"') {
        open_quote = c;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if (c == ')' || c == ']' || c == '}') {
        if (--depth < 0) break;
      } else if (c == ',' && depth == 0) {
        break;
      }
      if (c != ' ' && c != '\n') value += c;
    }
    return value;
  }
  return {};
}

struct Description {
  std::string dtype;  // "<f4"
  bool fortran = false;
  std::vector<int64_t> shape;
};

std::optional<Description> Describe(const std::string& dict) {
  const auto dtype = ValueOf(dict, "descr");
  const auto order = ValueOf(dict, "fortran_order");
  const auto shape = ValueOf(dict, "shape");
  if (!dtype || !order || !shape || dtype->empty()) return {};
  if (*order != "True" && *order != "False") return {};
  Description out{*dtype, *order == "True", {}};
  if (out.dtype.front() == '\'' || out.dtype.front() == '"') {
    out.dtype = out.dtype.substr(1, out.dtype.size() - 2);
  }
  if (shape->size() < 2 || shape->front() != '(' || shape->back() != ')') return {};
  std::string number;
  for (const char c : shape->substr(1)) {
    if (c >= '0' && c <= '9') {
      number += c;
    } else if (c == ',' || c == ')') {
      if (number.size() > 18) return {};
      if (!number.empty()) out.shape.push_back(std::stoll(number));
      number.clear();
    } else if (c != 'L') {
      return {};
    }
  }
  return out;
}

struct Named {
  const char* name;  // without byte order
  DType dtype;
};
constexpr Named kTypes[] = {{"u1", DType::kU8},  {"i1", DType::kI8},  {"b1", DType::kU8},
                            {"u2", DType::kU16}, {"i2", DType::kI16}, {"u4", DType::kU32},
                            {"i4", DType::kI32}, {"f2", DType::kF16}, {"f4", DType::kF32},
                            {"f8", DType::kF64}};

std::string TypeName(DType dtype) {
  for (const Named& type : kTypes) {
    if (type.dtype == dtype)
      return std::string(DTypeSize(dtype) == 1 ? "|" : "<").append(type.name);
  }
  throw Error(Fault::kInternal, "no .npy name for this type");
}

class NpyReader final : public Reader {
 public:
  explicit NpyReader(InputFile file) : file_(std::move(file)) {
    const Description array = ReadDescription();
    SetType(array.dtype);
    SetShape(array);
    const int64_t expected = layout_.offset + layout_.bytes();
    if (file_.size() != expected) {
      ThrowInput(file_.path(), "the .npy header promises " + std::to_string(expected) +
                                   " bytes, the file has " + std::to_string(file_.size()) +
                                   (file_.size() < expected ? ": it was cut" : ": it was altered"));
    }
  }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }
  void Read(const Box& box, const View& out) override { ReadArray(file_, layout_, box, out); }

 private:
  Description ReadDescription() {
    std::string head(kSniffBytes, '\0');
    head.resize(file_.ReadSome(0, std::as_writable_bytes(std::span(head))));
    const int major = head.size() > kMagicBytes ? head[kMagicBytes] : 0;
    if (major < 1 || major > 3) {
      ThrowInput(file_.path(),
                 ".npy version " + std::to_string(major) + "; 1, 2 and 3 can be read");
    }
    const size_t start = major == 1 ? 10 : 12;
    if (head.size() < start) ThrowInput(file_.path(), "the .npy header is cut");
    const size_t length =
        major == 1 ? LoadLittle<uint16_t>(head.data() + 8) : LoadLittle<uint32_t>(head.data() + 8);
    if (length > kHeaderLimit || static_cast<int64_t>(start + length) > file_.size()) {
      ThrowInput(file_.path(), "the .npy header claims " + std::to_string(length) +
                                   " bytes in a file of " + std::to_string(file_.size()));
    }
    std::string dict(length, '\0');
    file_.ReadAt(static_cast<int64_t>(start), std::as_writable_bytes(std::span(dict)));
    layout_.offset = static_cast<int64_t>(start + length);
    auto array = Describe(dict);
    if (!array) ThrowInput(file_.path(), "unreadable .npy header: " + Printable(dict, 120));
    return *array;
  }

  void SetType(const std::string& name) {
    if (name.size() == 3 && std::strchr("<>|=", name[0]) != nullptr) {
      for (const Named& type : kTypes) {
        if (name.compare(1, 2, type.name) == 0) {
          layout_.dtype = type.dtype;
          layout_.swap = name[0] == '>' && DTypeSize(type.dtype) > 1;
          return;
        }
      }
    }
    ThrowInput(file_.path(), ".npy type '" + Printable(name, 60) +
                                 "' is not supported; u1 i1 u2 i2 u4 i4 f2 f4 f8 and b1 are");
  }

  void SetShape(const Description& array) {
    const auto& shape = array.shape;
    if (shape.size() < 2 || shape.size() > 4) {
      ThrowInput(file_.path(), ".npy of rank " + std::to_string(shape.size()) +
                                   "; 2 (y,x), 3 (z,y,x) and 4 (c,z,y,x) are supported");
    }
    int64_t all = static_cast<int64_t>(DTypeSize(layout_.dtype));
    for (const int64_t n : shape) {
      if (n < 1) ThrowInput(file_.path(), "the .npy array is empty: an axis has length 0");
      if (__builtin_mul_overflow(all, n, &all)) {
        ThrowInput(file_.path(), "the .npy header claims more than 2^63 bytes");
      }
    }
    const size_t first = shape.size() == 4 ? 1 : 0;
    if (first == 1 && shape[0] > INT32_MAX) {
      ThrowInput(file_.path(), std::to_string(shape[0]) + " channels; 2^31 - 1 is the limit");
    }
    layout_.channels = first == 1 ? shape[0] : 1;
    layout_.shape = {shape.size() == 2 ? 1 : shape[first], shape[shape.size() - 2], shape.back()};
    layout_.stride = array.fortran ? FortranStrides(layout_.dtype, layout_.channels, layout_.shape)
                                   : DenseStrides(layout_.dtype, layout_.channels, layout_.shape);
    metadata_.fortran_order = array.fortran;
    header_.format = "npy";
    header_.dtype = layout_.dtype;
    header_.dims = shape.size() == 2 ? 2 : 3;
    header_.channels = static_cast<int32_t>(layout_.channels);
    header_.shape = layout_.shape;
  }

  InputFile file_;
  ArrayLayout layout_;
  Header header_;
  Metadata metadata_;
};

class NpyWriter final : public Writer {
 public:
  NpyWriter(OutputFile& file, const Header& header) : file_(file), cursor_(header.shape) {
    const bool picture = header.dims == 2 && header.shape[0] == 1 && header.channels == 1;
    std::string shape = header.channels > 1 ? std::to_string(header.channels) + ", " : "";
    if (!picture) shape += std::to_string(header.shape[0]) + ", ";
    shape += std::to_string(header.shape[1]) + ", " + std::to_string(header.shape[2]);
    std::string dict = "{'descr': '" + TypeName(header.dtype) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
    constexpr size_t kAlign = 64;
    constexpr size_t kBefore = 10;
    dict.resize((kBefore + dict.size() + kAlign) / kAlign * kAlign - kBefore - 1, ' ');
    dict += '\n';
    std::string head(kMagic, kMagicBytes);
    head += std::string("\1\0\0\0", 4);
    Store(head.data() + 8, static_cast<uint16_t>(dict.size()), false);
    head += dict;
    file.Write(std::as_bytes(std::span(head)));
    layout_ = {
        header.dtype, header.channels, header.shape, static_cast<int64_t>(head.size()), {}, {}};
  }

  void Write(const Box& band, const ConstView& samples) override {
    WriteArrayRows(file_, layout_, cursor_.Continue(band), samples);
  }
  void Finish() override { cursor_.RequireEnd(); }

 private:
  OutputFile& file_;
  RowCursor cursor_;
  ArrayLayout layout_;
};

bool RecognisesNpy(std::span<const std::byte> head) {
  return head.size() >= kMagicBytes && std::memcmp(head.data(), kMagic, kMagicBytes) == 0;
}

std::unique_ptr<Reader> OpenNpy(InputFile file) {
  return std::make_unique<NpyReader>(std::move(file));
}

std::unique_ptr<Writer> CreateNpy(OutputFile& file, const WriteSpec& spec) {
  return std::make_unique<NpyWriter>(file, spec.header);
}

std::string HoldsAnything(const Header&) { return ""; }

}  // namespace

const Container& NpyContainer() {
  static const Container container{"npy",     {".npy"},      RecognisesNpy,    OpenNpy,
                                   CreateNpy, HoldsAnything, SamplesOnlyLosses};
  return container;
}

}  // namespace tilery
