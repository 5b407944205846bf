// Headers of all inputs, read in parallel.
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "io/error.h"
#include "io/vdb_file.h"
#include "scheduler/inputs.h"

namespace tilery {
namespace {

bool IsGrid(const VdbGrid& grid) { return grid.twin_of.empty() && VdbNumbersOf(grid.type); }

// Why no model runs on a grid that was named.
std::string WhyNoGrid(const VdbGrid& grid) {
  const std::string name = "grid '" + Printable(grid.label, 60) + "' ";
  if (!grid.twin_of.empty()) return name + "shares the tree of another; ";
  return name + "is of type " + VdbValueTypeOf(grid) + "; ";
}

// The one grid of the file that the job is about.
const VdbGrid& ChooseGrid(const VdbFile& file, const std::vector<std::string>& wanted) {
  std::string known, other;
  std::vector<const VdbGrid*> chosen;
  for (const VdbGrid& grid : file.grids()) {
    const bool named = std::find(wanted.begin(), wanted.end(), grid.label) != wanted.end() ||
                       std::find(wanted.begin(), wanted.end(), grid.name) != wanted.end();
    if (!IsGrid(grid)) {
      if (named && other.empty()) other = WhyNoGrid(grid);
      continue;
    }
    known += (known.empty() ? "" : ", ") + Printable(grid.label, 60);
    if (wanted.empty() || named) chosen.push_back(&grid);
  }
  const std::string there = known.empty() ? "it has no grid of float, double or vectors"
                                          : "its grids of float, double and vectors: " + known;
  if (chosen.size() == 1) return *chosen[0];
  throw Error(Fault::kInput,
              Printable(file.file().path().native()) +
                  (!chosen.empty()  ? ": several grids; name one of them in input.grids; "
                   : !other.empty() ? ": " + other
                                    : ": no grid is called as input.grids says; ") +
                  there);
}

void ReadGrid(const std::vector<std::string>& wanted, InputHeader& input) {
  const VdbFile file(input.path);
  input.stamp = file.file().stamp();
  const VdbGrid& grid = ChooseGrid(file, wanted);
  input.grid.label = grid.label;
  input.grid_type = VdbValueTypeOf(grid);
  input.header.format = "vdb";
  input.header.dtype = DType::kF32;
  input.header.dims = 3;
  input.header.channels = VdbNumbersOf(grid.type)->components;
}

bool IsVdb(const std::string& path) {
  try {
    return IsVdbFile(path);
  } catch (const Error&) {
    return false;  // said when it is opened
  }
}

InputHeader ReadOne(
    const std::string& path, const std::optional<RawLayout>& raw,
    const std::vector<std::string>& grids, const std::string& output_format,
    const std::function<const Header*(const std::string&, const FileStamp&)>& known) {
  InputHeader input;
  input.path = path;
  try {
    const std::string format = output_format.empty() ? FormatOfExtension(path) : output_format;
    // The header of a raw file is what the job says today.
    if (known && !raw) {
      const std::optional<FileStamp> stamp = StampOf(path);
      const Header* header = stamp ? known(path, *stamp) : nullptr;
      // What would be lost depends on metadata, which only the file has; a format loses nothing of
      // its own but what makes an item that is not remembered.
      if (header != nullptr && header->format == format && format != "vdb") {
        input.stamp = *stamp;
        input.header = *header;
        input.identity = input.stamp;
        return input;
      }
    }
    if (!raw && IsVdb(path)) {
      ReadGrid(grids, input);
      input.identity = input.stamp;
      return input;
    }
    const std::unique_ptr<Reader> reader = OpenReader(path, raw);
    input.stamp = reader->stamp();
    input.header = reader->header();
    const Metadata& metadata = reader->metadata();
    if (!format.empty() && (format != input.header.format || !metadata.left_out.empty())) {
      input.losses = Losses(format, input.header, metadata);
    }
  } catch (const std::exception& error) {
    input.error = error.what();
    if (input.error.empty()) input.error = Printable(path) + ": can't be read";
  }
  input.identity = input.stamp;
  return input;
}

}  // namespace

std::vector<InputHeader> ReadHeaders(
    const std::vector<std::string>& paths, const std::optional<RawLayout>& raw,
    const std::string& output_format, int threads,
    const std::function<const Header*(const std::string&, const FileStamp&)>& known,
    const std::vector<std::string>& grids) {
  std::vector<InputHeader> headers(paths.size());
  std::atomic<size_t> next{0};
  const auto read = [&] {
    constexpr size_t kAtOnce = 16;  // neighbours in a folder, one atomic per sixteen files
    for (size_t begin = next.fetch_add(kAtOnce); begin < paths.size();
         begin = next.fetch_add(kAtOnce)) {
      for (size_t k = begin; k < std::min(begin + kAtOnce, paths.size()); ++k) {
        headers[k] = ReadOne(paths[k], raw, grids, output_format, known);
      }
    }
  };
  const size_t useful =
      std::max<size_t>(1, std::min<size_t>(std::max(threads, 1), paths.size() / 8));
  std::vector<std::jthread> others;
  for (size_t k = 1; k < useful; ++k) others.emplace_back(read);
  read();
  return headers;
}

}  // namespace tilery
