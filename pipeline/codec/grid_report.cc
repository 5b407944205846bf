// What a compressed file says of what became of its grids.
#include <cmath>
#include <map>
#include <utility>

#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_index.h"

namespace tilery {

double GridReport::rms() const {
  return numbers > 0 ? std::sqrt(squares / static_cast<double>(numbers)) : 0;
}

std::optional<double> GridReport::psnr() const {
  if (!(rms() > 0) || !(most > least)) return std::nullopt;
  return 20 * std::log10((most - least) / rms());
}

std::vector<GridReport> ReportsOf(const TvdbFile& file) {
  std::map<uint32_t, int64_t> bytes;
  std::vector<std::pair<uint32_t, GridReport>> found;
  for (const TvdbPiece& at : file.pieces()) {
    const auto kind = static_cast<PieceKind>(at.kind);
    if (kind == PieceKind::kFile) continue;
    bytes[at.grid] += at.bytes;
    if (kind != PieceKind::kGrid) continue;
    GridPiece piece = Naming(file, "what is said of grid " + std::to_string(at.grid),
                             [&] { return UnpackGrid(file.Read(at)); });
    GridReport report;
    report.about = std::move(piece.about);
    report.how = piece.how;
    report.numbers = piece.error.numbers;
    report.least = piece.least;
    report.most = piece.most;
    report.bound = piece.coding.bound;
    report.context = !piece.coding.contexts.empty();
    report.max_error = piece.error.most;
    report.squares = piece.error.squares;
    found.emplace_back(at.grid, std::move(report));
  }
  std::vector<VdbGrid> names;
  for (const auto& [index, report] : found) names.push_back(report.about);
  NameGrids(names);
  std::vector<GridReport> reports;
  for (size_t k = 0; k < found.size(); ++k) {
    found[k].second.about = std::move(names[k]);
    found[k].second.bytes = bytes[found[k].first];
    reports.push_back(std::move(found[k].second));
  }
  return reports;
}

}  // namespace tilery
