#include "worker/stage_file.h"

#include <array>
#include <cstring>
#include <span>

namespace tilery {
namespace {

constexpr int64_t kHead = 64;
constexpr size_t kKeySize = 32;

std::array<std::byte, kHead> MakeHead(const Header& header, const std::string& key) {
  if (key.size() != kKeySize) {
    throw Error(Fault::kInternal, "the key of a stage file has " + std::to_string(key.size()) +
                                      " digits instead of 32");
  }
  std::array<std::byte, kHead> head{};
  const std::array<uint32_t, 2> numbers = {static_cast<uint32_t>(header.dtype),
                                           static_cast<uint32_t>(header.channels)};
  std::memcpy(head.data(), "TILSTAG1", 8);
  std::memcpy(head.data() + 8, key.data(), kKeySize);
  std::memcpy(head.data() + 40, numbers.data(), sizeof(numbers));
  return head;
}

int64_t VoxelBytes(const Header& header) {
  return header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
}

InputFile Open(const std::filesystem::path& path) {
  try {
    return InputFile(path);
  } catch (const Error& e) {
    throw Error(Fault::kTransient, e.what());
  }
}

}  // namespace

StageFileWriter::StageFileWriter(const std::filesystem::path& target, const std::string& attempt,
                                 const Header& header, const std::string& key)
    : file_(target, attempt), expected_(kHead + Product(header.shape) * VoxelBytes(header)) {
  file_.Write(MakeHead(header, key));
}

void StageFileWriter::Write(const ConstView& band) {
  file_.Write({band.data, static_cast<size_t>(band.bytes())});
}

Published StageFileWriter::Publish(const std::function<void()>& may_rename) {
  if (file_.size() != expected_) {
    throw Error(Fault::kInternal, Printable(file_.target().native()) + " got " +
                                      std::to_string(file_.size()) + " of " +
                                      std::to_string(expected_) + " bytes");
  }
  return file_.Publish(Durability::kRename, may_rename);
}

StageFileReader::StageFileReader(const std::filesystem::path& path, const Header& header,
                                 const std::string& key)
    : file_(Open(path)), shape_(header.shape), voxel_bytes_(VoxelBytes(header)) {
  const int64_t expected = kHead + Product(shape_) * voxel_bytes_;
  if (file_.size() != expected) {
    throw Error(Fault::kTransient, "stage file " + Printable(path.native()) + " has " +
                                       std::to_string(file_.size()) + " bytes instead of " +
                                       std::to_string(expected));
  }
  std::array<std::byte, kHead> head;
  file_.ReadAt(0, head);
  if (head != MakeHead(header, key)) {
    throw Error(Fault::kTransient,
                "stage file " + Printable(path.native()) + " belongs to another item");
  }
}

void StageFileReader::Read(const Box& box, const View& out) const {
  if (!Box::Whole(shape_).contains(box) || out.shape != box.shape() ||
      !IsDense(out, Layout::kInterleaved)) {
    throw Error(Fault::kInternal, "stage file: box " + ToString(box) + " can't be read");
  }
  // Neighbouring rows and planes that lie together in the file are one read.
  const Index extent = box.shape();
  const bool whole_rows = extent[2] == shape_[2];
  const bool whole_planes = whole_rows && extent[1] == shape_[1];
  const int64_t planes = whole_planes ? 1 : extent[0];
  const int64_t rows = whole_rows ? 1 : extent[1];
  const int64_t run = box.voxels() / (planes * rows) * voxel_bytes_;
  std::byte* into = out.data;
  for (int64_t z = 0; z < planes; ++z) {
    for (int64_t y = 0; y < rows; ++y, into += run) {
      const int64_t voxel =
          ((box.begin[0] + z) * shape_[1] + box.begin[1] + y) * shape_[2] + box.begin[2];
      file_.ReadAt(kHead + voxel * voxel_bytes_, {into, static_cast<size_t>(run)});
    }
  }
}

}  // namespace tilery
