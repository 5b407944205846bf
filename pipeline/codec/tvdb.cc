// The C interface of GridReader: errors become codes and texts, values become plain structs.
#include "pipeline/codec/tvdb.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "io/byte_order.h"
#include "io/error.h"
#include "io/vdb_map.h"
#include "pipeline/codec/grid_reader.h"

struct tvdb_file {
  explicit tvdb_file(const char* path) : reader(path) {}
  tilery::GridReader reader;
  std::vector<std::string> types, classes;  // by grid
  std::vector<tvdb_info> infos;
};

struct tvdb_leaves {
  tvdb_leaves(const tilery::GridReader& reader, size_t grid)
      : leaves(reader, grid), numbers(reader.CodedTree(grid).coding.numbers) {}
  tilery::LeafReader leaves;
  tilery::VdbNumbers numbers;
};

namespace tilery {
namespace {

thread_local char message[1024] = "";

tvdb_code Fail(tvdb_code code, const char* text) {
  std::snprintf(message, sizeof message, "%s", text);
  return code;
}

// Nothing is thrown out of this library.
template <typename Work>
tvdb_code Guarded(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    return Fail(error.fault() == Fault::kInput       ? TVDB_BAD_FILE
                : error.fault() == Fault::kTransient ? TVDB_SHORTAGE
                                                     : TVDB_INTERNAL,
                error.what());
  } catch (const std::bad_alloc&) {
    return Fail(TVDB_SHORTAGE, "out of memory");
  } catch (const std::exception& error) {
    return Fail(TVDB_INTERNAL, error.what());
  } catch (...) {
    return Fail(TVDB_INTERNAL, "an unknown fault");
  }
}

const VdbMeta* Find(const std::vector<VdbMeta>& all, const char* name, const char* type,
                    size_t bytes) {
  for (const VdbMeta& meta : all) {
    if (meta.name == name && meta.type == type && (bytes == 0 || meta.value.size() == bytes))
      return &meta;
  }
  return nullptr;
}

void AddMap(const VdbTransform& transform, tvdb_info* info) {
  info->map = transform.type.c_str();
  const auto matrix = VdbIndexToWorld(transform);
  info->has_matrix = matrix ? 1 : 0;
  if (matrix) std::memcpy(info->index_to_world, matrix->data(), sizeof info->index_to_world);
}

void AddCoding(const GridReader& reader, size_t tree, tvdb_info* info) {
  const GridPiece& piece = reader.piece(tree);
  const GridReport& report = reader.reports()[tree];
  const VdbNumbers& numbers = piece.coding.numbers;
  info->number = numbers.dtype == DType::kF64 ? TVDB_F64 : TVDB_F32;
  info->components = numbers.components;
  info->half = piece.about.half ? 1 : 0;
  const auto background = std::as_bytes(std::span(piece.coding.background));
  for (size_t c = 0; c < static_cast<size_t>(numbers.components); ++c)
    info->background[c] = VdbNumberAt(&background[c * DTypeSize(numbers.dtype)], numbers.dtype);
  info->bound = report.bound;
  info->step = piece.coding.step;
  info->least = report.least;
  info->most = report.most;
  info->max_error = report.max_error;
  info->rms = report.rms();
  info->psnr = report.psnr().value_or(std::numeric_limits<double>::infinity());
  info->numbers = report.numbers;
  for (const auto& [origin, piece_of_region] : reader.pieces(tree).regions) {
    const VdbBox cube = CubeAt(origin, VdbEdge(VdbLevel::kLower));
    for (size_t axis = 0; axis < 3; ++axis) {
      int64_t &begin = info->leaves_begin[axis], &end = info->leaves_end[axis];
      begin = info->regions == 0 ? cube.begin[axis] : std::min(begin, cube.begin[axis]);
      end = info->regions == 0 ? cube.end[axis] : std::max(end, cube.end[axis]);
    }
    ++info->regions;
  }
}

// What OpenVDB notes of a grid when it writes it.
void AddNotes(const std::vector<VdbMeta>& metadata, tvdb_info* info) {
  const VdbMeta* const count = Find(metadata, "file_voxel_count", "int64", sizeof(int64_t));
  info->active_voxels = count != nullptr ? LoadLittle<int64_t>(count->value.data()) : -1;
  const VdbMeta* const least = Find(metadata, "file_bbox_min", "vec3i", sizeof(VdbCoord));
  const VdbMeta* const most = Find(metadata, "file_bbox_max", "vec3i", sizeof(VdbCoord));
  if (least == nullptr || most == nullptr || info->active_voxels == 0) return;
  const auto begin = LoadLittle<VdbCoord>(least->value.data());
  const auto last = LoadLittle<VdbCoord>(most->value.data());
  for (size_t axis = 0; axis < 3; ++axis) {
    info->active_begin[axis] = begin[axis];
    info->active_end[axis] = int64_t{last[axis]} + 1;
  }
}

void AddInfos(tvdb_file* file) {
  const GridReader& reader = file->reader;
  const size_t grids = reader.reports().size();
  for (const GridReport& report : reader.reports()) {
    file->types.push_back(VdbValueTypeOf(report.about));
    const VdbMeta* const meta = Find(report.about.metadata, "class", "string", 0);
    file->classes.push_back(meta != nullptr ? meta->value : "unknown");
  }
  for (size_t i = 0; i < grids; ++i) {
    const VdbGrid& about = reader.reports()[i].about;
    tvdb_info info{};
    info.label = about.label.c_str();
    info.name = about.name.c_str();
    info.type = file->types[i].c_str();
    info.grid_class = file->classes[i].c_str();
    info.bytes = reader.reports()[i].bytes;
    info.tree = reader.TreeOf(i);
    AddMap(about.transform, &info);
    if (reader.piece(info.tree).how == GridPiece::How::kCoded) AddCoding(reader, info.tree, &info);
    AddNotes(about.metadata, &info);
    if (info.active_voxels < 0) AddNotes(reader.reports()[info.tree].about.metadata, &info);
    file->infos.push_back(info);
  }
}

tvdb_code CheckGrid(const tvdb_file* file, size_t grid) {
  if (file == nullptr) return Fail(TVDB_ARGUMENT, "no file");
  if (grid < file->infos.size()) return TVDB_OK;
  const std::string text = "there is no grid " + std::to_string(grid) + "; the file has " +
                           std::to_string(file->infos.size());
  return Fail(TVDB_ARGUMENT, text.c_str());
}

tvdb_code CheckCoded(const tvdb_file* file, size_t grid) {
  const tvdb_code code = CheckGrid(file, grid);
  if (code != TVDB_OK || file->infos[grid].number != TVDB_NONE) return code;
  try {
    file->reader.CodedTree(grid);
    return TVDB_OK;
  } catch (const Error& error) {
    return Fail(TVDB_NOT_CODED, error.what());
  }
}

// Whether the numbers of a box fit into memory for so many.
bool Fits(const VdbBox& box, int components, size_t capacity) {
  if (box.empty()) return true;
  size_t left = capacity / static_cast<size_t>(components);
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto extent =
        static_cast<uint64_t>(box.end[axis]) - static_cast<uint64_t>(box.begin[axis]);
    if (extent > left) return false;
    left /= extent;
  }
  return true;
}

template <typename Number>
tvdb_code Read(const tvdb_file* file, size_t grid, const int64_t* begin, const int64_t* end,
               Number* values, size_t capacity, uint8_t* active) {
  return Guarded([&] {
    if (const tvdb_code code = CheckCoded(file, grid); code != TVDB_OK) return code;
    if (begin == nullptr || end == nullptr) return Fail(TVDB_ARGUMENT, "no box");
    VdbBox box;
    std::copy_n(begin, 3, box.begin.data());
    std::copy_n(end, 3, box.end.data());
    if (box.empty()) return TVDB_OK;
    if (values == nullptr) return Fail(TVDB_ARGUMENT, "no memory for values");
    if (!Fits(box, file->infos[grid].components, capacity)) {
      const std::string text =
          "the box has more numbers than there is room for, which is " + std::to_string(capacity);
      return Fail(TVDB_ARGUMENT, text.c_str());
    }
    file->reader.Read(grid, box, values, active);
    return TVDB_OK;
  });
}

}  // namespace
}  // namespace tilery

using tilery::CheckCoded;
using tilery::CheckGrid;
using tilery::Fail;
using tilery::Guarded;

const char* tvdb_message(void) { return tilery::message; }

tvdb_code tvdb_open(const char* path, tvdb_file** file) {
  return Guarded([&] {
    if (path == nullptr || file == nullptr) return Fail(TVDB_ARGUMENT, "no path");
    auto opened = std::make_unique<tvdb_file>(path);
    tilery::AddInfos(opened.get());
    *file = opened.release();
    return TVDB_OK;
  });
}

void tvdb_close(tvdb_file* file) { delete file; }

size_t tvdb_grid_count(const tvdb_file* file) { return file == nullptr ? 0 : file->infos.size(); }

tvdb_code tvdb_find(const tvdb_file* file, const char* label, size_t* grid) {
  return Guarded([&] {
    if (file == nullptr || label == nullptr || grid == nullptr)
      return Fail(TVDB_ARGUMENT, "no file or label");
    std::string labels;
    for (size_t i = 0; i < file->infos.size(); ++i) {
      if (std::strcmp(file->infos[i].label, label) == 0) {
        *grid = i;
        return TVDB_OK;
      }
      labels += (labels.empty() ? "" : ", ") + tilery::Printable(file->infos[i].label, 60);
    }
    const std::string text = "there is no grid '" + tilery::Printable(label, 60) +
                             "'; there are: " + tilery::Printable(labels);
    return Fail(TVDB_NOT_FOUND, text.c_str());
  });
}

tvdb_code tvdb_grid_info(const tvdb_file* file, size_t grid, tvdb_info* info) {
  return Guarded([&] {
    if (const tvdb_code code = CheckGrid(file, grid); code != TVDB_OK) return code;
    if (info == nullptr) return Fail(TVDB_ARGUMENT, "no memory for the answer");
    *info = file->infos[grid];
    return TVDB_OK;
  });
}

tvdb_code tvdb_metadata(const tvdb_file* file, size_t grid, size_t index, tvdb_entry* entry) {
  return Guarded([&] {
    if (grid != TVDB_WHOLE_FILE || file == nullptr) {
      if (const tvdb_code code = CheckGrid(file, grid); code != TVDB_OK) return code;
    }
    if (entry == nullptr) return Fail(TVDB_ARGUMENT, "no memory for the answer");
    const auto& all = grid == TVDB_WHOLE_FILE ? file->reader.about().metadata
                                              : file->reader.reports()[grid].about.metadata;
    if (index >= all.size()) return TVDB_END;
    const tilery::VdbMeta& meta = all[index];
    *entry = {meta.name.c_str(), meta.type.c_str(), meta.value.data(), meta.value.size()};
    return TVDB_OK;
  });
}

tvdb_code tvdb_read_f32(const tvdb_file* file, size_t grid, const int64_t begin[3],
                        const int64_t end[3], float* values, size_t capacity, uint8_t* active) {
  return tilery::Read(file, grid, begin, end, values, capacity, active);
}

tvdb_code tvdb_read_f64(const tvdb_file* file, size_t grid, const int64_t begin[3],
                        const int64_t end[3], double* values, size_t capacity, uint8_t* active) {
  return tilery::Read(file, grid, begin, end, values, capacity, active);
}

tvdb_code tvdb_leaves_open(const tvdb_file* file, size_t grid, tvdb_leaves** leaves) {
  return Guarded([&] {
    if (const tvdb_code code = CheckCoded(file, grid); code != TVDB_OK) return code;
    if (leaves == nullptr) return Fail(TVDB_ARGUMENT, "no memory for the answer");
    *leaves = new tvdb_leaves(file->reader, grid);
    return TVDB_OK;
  });
}

tvdb_code tvdb_leaves_next(tvdb_leaves* leaves, tvdb_leaf* leaf) {
  return Guarded([&] {
    if (leaves == nullptr || leaf == nullptr) return Fail(TVDB_ARGUMENT, "no leaves");
    tilery::LeafReader::Leaf next;
    if (!leaves->leaves.Next(&next)) return TVDB_END;
    std::copy(next.origin.begin(), next.origin.end(), leaf->origin);
    std::copy(next.active.begin(), next.active.end(), leaf->active);
    const bool wide = leaves->numbers.dtype == tilery::DType::kF64;
    leaf->f32 = wide ? nullptr : reinterpret_cast<const float*>(next.values.data());
    leaf->f64 = wide ? reinterpret_cast<const double*>(next.values.data()) : nullptr;
    return TVDB_OK;
  });
}

void tvdb_leaves_close(tvdb_leaves* leaves) { delete leaves; }
