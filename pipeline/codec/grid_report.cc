// What a compressed file says of what became of its grids.
#include <cmath>
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
  const GridIndex index(file);
  std::vector<GridReport> reports;
  for (uint32_t i = 0; i < index.size(); ++i) {
    GridPiece piece = index.Read(i);
    GridReport report;
    report.about = std::move(piece.about);
    report.how = piece.how;
    report.numbers = piece.error.numbers;
    report.least = piece.least;
    report.most = piece.most;
    report.bound = piece.coding.bound;
    report.context = !piece.coding.contexts.empty();
    report.codes = piece.coding.vq.has_value();
    report.exact = piece.coding.step == 0;
    report.max_error = piece.error.most;
    report.squares = piece.error.squares;
    report.bytes = index.grid(i).bytes;
    reports.push_back(std::move(report));
  }
  std::vector<VdbGrid> names;
  for (const GridReport& report : reports) names.push_back(report.about);
  NameGrids(names);
  for (size_t k = 0; k < reports.size(); ++k) reports[k].about = std::move(names[k]);
  return reports;
}

}  // namespace tilery
