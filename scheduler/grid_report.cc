#include "scheduler/grid_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "io/error.h"
#include "io/parallel_for.h"
#include "io/tvdb_file.h"
#include "pipeline/codec/grid_file.h"
#include "scheduler/console.h"
#include "scheduler/inspect_grids.h"
#include "scheduler/prepare.h"

namespace tilery {
namespace {

// Grids of one label in all files.
struct Row {
  int64_t files = 0, bytes = 0;
  GridReport sum;  // with the largest bound and error of all
  bool coded = false, exact = true;

  void Add(const GridReport& grid) {
    if (files == 0) {
      sum = grid;
    } else {
      sum.least = std::min(sum.least, grid.least);
      sum.most = std::max(sum.most, grid.most);
      sum.bound = std::max(sum.bound, grid.bound);
      sum.max_error = std::max(sum.max_error, grid.max_error);
      sum.squares += grid.squares;
      sum.numbers += grid.numbers;
    }
    exact = exact && grid.exact;
    coded = coded || grid.how == GridPiece::How::kCoded;
    ++files;
    bytes += grid.bytes;
  }
};

std::string Number(double value) { return fmt::format("{:.4g}", value); }

}  // namespace

std::string GridWords(const Job& job, const Plan& plan) {
  const size_t files = plan.items.size();
  std::string words =
      fmt::format("{} file{} to {}", files, files == 1 ? "" : "s", TaskName(job.task));
  if (job.task == Task::kCompress) {
    words += fmt::format(": active values {}; all else exactly", job.max_error.Words());
    if (job.max_error.method == GridMethod::kAuto) words += ", each block as what is smaller";
    if (job.max_error == GridBounds{})
      words += " (--max-error says another bound, --lossless none)";
  }
  return words;
}

std::vector<std::string> GridReportLines(const Plan& plan) {
  std::vector<std::vector<GridReport>> reports(plan.items.size());
  std::vector<int64_t> sizes(plan.items.size());
  ParallelFor(UsableCpus(), static_cast<int64_t>(plan.items.size()), [&](int64_t k) {
    const auto at = static_cast<size_t>(k);
    if (!plan.items[at].refused.empty()) return;
    try {
      const TvdbFile file(plan.items[at].output);
      reports[at] = ReportsOf(file);
      sizes[at] = file.file().size();
    } catch (const Error&) {
      // Its item has failed, and says why.
    }
  });
  std::map<std::string, Row> rows;
  std::vector<std::string> order;
  int64_t from = 0, to = 0;
  for (size_t k = 0; k < reports.size(); ++k) {
    if (sizes[k] == 0) continue;
    from += plan.items[k].stamp.size;
    to += sizes[k];
    for (const GridReport& grid : reports[k]) {
      Row& row = rows[grid.about.label];
      if (row.files == 0) order.push_back(grid.about.label);
      row.Add(grid);
    }
  }
  if (from == 0) return {};
  std::vector<std::string> lines;
  size_t width = 4;
  constexpr size_t kMostRows = 40;
  order.resize(std::min(order.size(), kMostRows));
  for (const std::string& label : order) width = std::max(width, Printable(label, 40).size());
  lines.push_back(fmt::format("{:<{}}  {:>6}  {:>22}  {:>10}  {:>10}  {:>10}  {:>9}  {:>9}", "grid",
                              width, "files", "range", "bound", "max error", "RMS", "PSNR",
                              "bytes"));
  for (const std::string& label : order) {
    const Row& row = rows[label];
    const GridReport& sum = row.sum;
    const auto psnr = sum.psnr();
    const bool exact = !row.coded || row.exact;
    lines.push_back(fmt::format(
        "{:<{}}  {:>6}  {:>22}  {:>10}  {:>10}  {:>10}  {:>9}  {:>9}", Printable(label, 40), width,
        row.files, row.coded ? Number(sum.least) + " .. " + Number(sum.most) : "-",
        exact            ? "exact"
        : sum.bound == 0 ? "none"
                         : Number(sum.bound),
        Number(sum.max_error), Number(sum.rms()), psnr ? fmt::format("{:.1f} dB", *psnr) : "-",
        BytesInWords(row.bytes)));
  }
  lines.push_back(fmt::format("{} -> {} ({:.1f} %)", BytesInWords(from), BytesInWords(to),
                              100.0 * static_cast<double>(to) / static_cast<double>(from)));
  return lines;
}

Json CompressedGridsJson(const std::filesystem::path& path) {
  const TvdbFile file(path);
  Json metadata = Json::array(), grids = Json::array();
  for (const TvdbPiece& piece : file.pieces()) {
    if (static_cast<PieceKind>(piece.kind) != PieceKind::kFile) continue;
    for (const VdbMeta& meta : UnpackFile(file.Read(piece)).metadata)
      metadata.push_back(Printable(meta.name, 200));
  }
  for (const GridReport& grid : ReportsOf(file)) {
    Json json = GridHeadJson(grid.about);
    const bool coded = grid.how == GridPiece::How::kCoded;
    json["coded"] = coded;
    if (coded) {
      // 0: exact; null: none.
      json["bound"] = !grid.exact && grid.bound == 0 ? Json() : Json(grid.bound);
      json["method"] = grid.exact     ? "exact"
                       : grid.codes   ? "vq"
                       : grid.context ? "context"
                                      : "adaptive";
      json["least"] = grid.least;
      json["most"] = grid.most;
      json["max_error"] = grid.max_error;
      json["rms"] = grid.rms();
      json["psnr"] = grid.psnr() ? Json(*grid.psnr()) : Json();
    }
    json["bytes"] = grid.bytes;
    grids.push_back(std::move(json));
  }
  return {{"kind", "grids"},
          {"format", "tvdb"},
          {"file", Printable(path.string(), 4096)},
          {"metadata", std::move(metadata)},
          {"grids", std::move(grids)}};
}

}  // namespace tilery
