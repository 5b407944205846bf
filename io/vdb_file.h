// OpenVDB files: their directory, and what is said of each grid. The trees are read by
// io/vdb_tree.h.
//
// Read by our own code, as a stream: memory stays bounded whatever a file holds or claims, and
// damage is an error. The library itself may take gigabytes on a damaged file, and holds the whole
// topology of a grid in memory. Written from the format as OpenVDB 10 writes and reads it
// (openvdb/io/{Archive,GridDescriptor,Compression}); its versions 222 to 224, which OpenVDB 3 to 11
// write. Numbers in files are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/buffered_input.h"
#include "io/dtype.h"
#include "io/file.h"

namespace tilery {

// One entry of a metadata map: the bytes of the value as the file holds them, by its type's name
// ("string", "int32", "vec3d", ...).
struct VdbMeta {
  std::string name, type, value;
  bool operator==(const VdbMeta&) const = default;
};

// A transform: the type of its map ("UniformScaleMap") and the map's numbers as the file holds
// them.
struct VdbTransform {
  std::string type, bytes;
  bool operator==(const VdbTransform&) const = default;
};

// Whether it is a map that we know, with as many bytes as such a map has.
bool VdbIsMap(const VdbTransform& transform);

// How the numbers of a tree are packed; OpenVDB's flags.
struct VdbPacking {
  static constexpr uint32_t kNone = 0, kZip = 1, kActiveMask = 2, kBlosc = 4;
};

// One grid of the directory.
struct VdbGrid {
  std::string name;     // may be empty, and several grids may have the same
  std::string label;    // `name`; NAME[k] (k from 0) where several have it
  std::string type;     // of the tree: "Tree_float_5_4_3"
  bool half = false;    // numbers are stored in 16 bits
  std::string stored;   // name as it stands in the file, with the suffix that tells twins apart
  std::string twin_of;  // `stored` of the grid whose tree this one shares; "" if none
  int64_t begin = 0;    // bytes of the file: metadata and transform ...
  int64_t tree = 0;     // ... topology ...
  int64_t values = 0;   // ... numbers of the leaves ...
  int64_t end = 0;      // ... and what follows
  uint32_t packing = 0;
  std::vector<VdbMeta> metadata;  // without file_delayed_load, which is true of this file alone
  VdbTransform transform;
};

// Sets name and label of all grids of a file by what is stored of their names.
void NameGrids(std::vector<VdbGrid>& grids);

// What numbers a tree holds. Types other than these are passed on as bytes.
struct VdbNumbers {
  DType dtype = DType::kF32;  // kF32 or kF64
  int components = 1;         // 1, or 3 for vectors
  size_t bytes() const { return DTypeSize(dtype) * static_cast<size_t>(components); }
};
// Of a tree with nodes of 32^3, 16^3 and 8^3; nullopt for all others.
std::optional<VdbNumbers> VdbNumbersOf(const std::string& type);
// What its values are called: "vec3s" of "Tree_vec3s_5_4_3". Printable.
std::string VdbValueTypeOf(const VdbGrid& grid);

// By its first bytes. Error(kInput) if it can't be read.
bool IsVdbFile(const std::filesystem::path& path);

// Reads the directory when it is made. Thread-safe afterwards. Error(kInput) with path, place and
// what is wrong, within memory and time that the size of the file bounds.
class VdbFile {
 public:
  explicit VdbFile(const std::filesystem::path& path);

  const InputFile& file() const { return file_; }
  uint32_t version() const { return version_; }
  const std::vector<VdbMeta>& metadata() const { return metadata_; }
  const std::vector<VdbGrid>& grids() const { return grids_; }

 private:
  InputFile file_;
  uint32_t version_ = 0;
  std::vector<VdbMeta> metadata_;
  std::vector<VdbGrid> grids_;
};

// Numbers and texts of a part of a file, from front to back; none is taken from beyond its end.
// Not thread-safe; `file` outlives it.
class VdbInput {
 public:
  VdbInput(const InputFile& file, int64_t begin, int64_t end)
      : file_(file), input_(file, begin), end_(end) {}

  int64_t position() const { return input_.position(); }
  int64_t left() const { return end_ - position(); }
  void Read(std::span<std::byte> into);
  void Skip(int64_t bytes);
  template <typename T>
  T Number() {
    T value;
    Read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  // Bytes whose number stands before them (32 bits).
  std::string Text();
  std::string Bytes(int64_t count);
  [[noreturn]] void Fail(const std::string& why) const;  // Error(kInput) with path and position

 private:
  const InputFile& file_;
  BufferedInput input_;
  int64_t end_;
};

}  // namespace tilery
