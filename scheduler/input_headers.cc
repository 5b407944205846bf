// Headers of all inputs, read in parallel.
#include <atomic>
#include <exception>
#include <thread>

#include "io/error.h"
#include "scheduler/inputs.h"

namespace tilery {
namespace {

InputHeader ReadOne(
    const std::string& path, const std::optional<RawLayout>& raw, const std::string& output_format,
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
      if (header != nullptr && header->format == format) {
        input.stamp = *stamp;
        input.header = *header;
        input.identity = input.stamp;
        return input;
      }
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
    const std::function<const Header*(const std::string&, const FileStamp&)>& known) {
  std::vector<InputHeader> headers(paths.size());
  std::atomic<size_t> next{0};
  const auto read = [&] {
    constexpr size_t kAtOnce = 16;  // neighbours in a folder, one atomic per sixteen files
    for (size_t begin = next.fetch_add(kAtOnce); begin < paths.size();
         begin = next.fetch_add(kAtOnce)) {
      for (size_t k = begin; k < std::min(begin + kAtOnce, paths.size()); ++k) {
        headers[k] = ReadOne(paths[k], raw, output_format, known);
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
