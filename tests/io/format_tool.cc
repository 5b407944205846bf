// A converter for tests: reads any container through the Reader, writes any through the Writer.
//
//   format_tool convert IN OUT [rows-per-band] [threads]
//   format_tool header IN            one line: format dtype channels alpha access dims z y x
//   format_tool losses IN FORMAT     what the format would lose, one line for each
//   format_tool raw IN OUT           the samples as the Reader delivers them, [z,y,x,c], nothing
//   else
//
// Errors go to standard error; exit 3 for inputs, 4 for outputs, 1 otherwise.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "io/error.h"
#include "io/format.h"
#include "io/thread_pool.h"
#include "tests/io/tool_main.h"

namespace tilery {
namespace {

// Calls `use(band, samples)` for bands of `rows` rows of each plane.
template <typename Use>
void ForBands(Reader& reader, int64_t rows, Use&& use) {
  const Header& header = reader.header();
  std::vector<std::byte> bytes;
  for (int64_t z = 0; z < header.shape[0]; ++z) {
    for (int64_t y = 0; y < header.shape[1]; y += rows) {
      const Box band{{z, y, 0}, {z + 1, std::min(y + rows, header.shape[1]), header.shape[2]}};
      bytes.resize(static_cast<size_t>(band.voxels() * header.channels) * DTypeSize(header.dtype));
      const View view = DenseView(bytes.data(), header.dtype, header.channels, band.shape(),
                                  Layout::kInterleaved);
      reader.Read(band, view);
      use(band, view, bytes);
    }
  }
  reader.CheckEnd();
}

int Run(const std::vector<std::string>& args) {
  const std::string& verb = args.at(0);
  const auto reader = OpenReader(args.at(1));
  const Header& header = reader->header();
  if (verb == "header") {
    static constexpr const char* kAlpha[] = {"none", "straight", "associated"};
    std::cout << header.format << ' ' << DTypeName(header.dtype) << ' ' << header.channels << ' '
              << kAlpha[static_cast<int>(header.alpha)] << ' '
              << (header.access == Access::kRandom ? "random" : "rows") << ' ' << int{header.dims}
              << ' ' << header.shape[0] << ' ' << header.shape[1] << ' ' << header.shape[2] << '\n';
    return 0;
  }
  if (verb == "losses") {
    for (const std::string& loss : Losses(args.at(2), header, reader->metadata())) {
      std::cout << loss << '\n';
    }
    return 0;
  }
  OutputFile file(args.at(2), "format-tool");
  const int64_t rows = args.size() > 3 ? std::stoll(args[3]) : 7;
  if (verb == "raw") {
    ForBands(*reader, rows, [&](const Box&, const View&, const std::vector<std::byte>& bytes) {
      file.Write(bytes);
    });
  } else if (verb == "convert") {
    ThreadPool pool(args.size() > 4 ? std::stoi(args[4]) : 1);
    WriteSpec spec{header, reader->metadata(), &pool};
    spec.header.format = FormatOfExtension(args[2]);
    const auto writer = CreateWriter(file, spec);
    ForBands(*reader, rows, [&](const Box& band, const View& view, const std::vector<std::byte>&) {
      writer->Write(band, view);
    });
    writer->Finish();
  } else {
    throw Error(Fault::kUsage, "convert, header, losses or raw, not " + verb);
  }
  file.Publish(Durability::kRename);
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::ToolMain(argc, argv, &tilery::Run); }
