#include "scheduler/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/error.h"

namespace tilery {
namespace {

constexpr const char* kSteps[] = {"forward", "engine", "files"};

// What must be the same for figures to be comparable, by the document's keys.
struct Same {
  const char *key, *words;
};
constexpr Same kSame[] = {{"card", "card"},
                          {"model_hash", "model"},
                          {"package_hash", "package"},
                          {"precision", "precision"},
                          {"layout", "layout"},
                          {"batch", "batch"},
                          {"lanes", "lanes"},
                          {"dims", "dimensions"},
                          {"tile", "tile"},
                          {"overlap", "overlap"},
                          {"window", "window"},
                          {"size", "size"},
                          {"dtype", "sample type"},
                          {"output_dtype", "output type"},
                          {"format", "format"},
                          {"items", "number of items"}};

std::string Shown(const Json& value) {
  return Printable(value.is_string() ? value.get<std::string>() : value.dump(), 200);
}

// Of models and packages the name is shown beside the hash, which alone decides.
std::string ShownOf(const Json& document, const std::string& key) {
  const Json value = document.contains(key) ? document.at(key) : Json();
  const std::string name = key.substr(0, key.find("_hash"));
  if (name == key || !document.contains(name)) return Shown(value);
  return Shown(document.at(name)) + " (" + Shown(value).substr(0, 12) + ")";
}

std::string Rate(double rate) { return fmt::format("{:.{}f}", rate, rate < 100 ? 3 : 1); }

}  // namespace

void AddRatios(Json& document, int64_t tiles_per_item) {
  Json& ladder = document.at("ladder");
  const double ceiling =
      ladder.contains("forward") ? ladder.at("forward").at("tiles_per_s").get<double>() : 0;
  for (auto& [step, figures] : ladder.items()) {
    const double rate = figures.at("tiles_per_s");
    figures["ratio"] = ceiling > 0 ? Json(rate / ceiling) : Json();
    figures["items_per_s"] = rate / static_cast<double>(tiles_per_item);
  }
}

std::string BenchTable(const Json& d) {
  const auto text = [&](const char* key) { return Shown(d.at(key)); };
  std::string out =
      fmt::format("{}\n{}, Torch {}\n", text("model"), text("device_kind"), text("torch"));
  const std::string slots = d.value("slots", std::string("all"));
  out += fmt::format("{}, {}, batch {}{}, lanes {}, tile {}, overlap {}{}{}\n", text("precision"),
                     text("layout"), text("batch"),
                     slots == "all" ? "" : " (slots " + Printable(slots) + " are used)",
                     text("lanes"), text("tile"), text("overlap"),
                     text("package").empty() ? "" : ", package ", text("package"));
  std::string size;
  for (const Json& n : d.at("size")) size += (size.empty() ? "" : "x") + n.dump();
  out += fmt::format("{} x {} {} {} of {} tiles\n", text("items"), size, text("dtype"),
                     text("format"), text("tiles_per_item"));
  if (!text("how").empty()) out += fmt::format("the model alone: {}\n", text("how"));
  out += fmt::format("\n{:<28}{:>12}{:>8}{:>11}{:>11}{:>11}{:>10}\n", "", "tiles/s", "ratio",
                     "p50 ms", "p95 ms", "p99 ms", "items/s");
  const char* names[] = {"forward only", "engine, memory to memory", "file to file"};
  for (size_t k = 0; k < std::size(kSteps); ++k) {
    if (!d.at("ladder").contains(kSteps[k])) continue;
    const Json& step = d.at("ladder").at(kSteps[k]);
    const Json& ratio = step.at("ratio");
    const auto ms = [&](const char* p) { return step.at("batch_s").at(p).get<double>() * 1e3; };
    out += fmt::format("{:<28}{:>12}{:>8}{:>11.3f}{:>11.3f}{:>11.3f}{:>10.4g}\n", names[k],
                       Rate(step.at("tiles_per_s")),
                       ratio.is_null() ? "-" : fmt::format("{:.1f} %", ratio.get<double>() * 100),
                       ms("p50"), ms("p95"), ms("p99"), step.at("items_per_s").get<double>());
    std::string idle;
    const Json causes = step.value("idle_s", Json::object());
    for (const auto& [cause, seconds] : causes.items()) {
      const double share = seconds.get<double>() / std::max(step.at("seconds").get<double>(), 1e-9);
      if (share >= 0.005)
        idle += fmt::format("{}{} {:.1f} %", idle.empty() ? "" : ", ", cause, share * 100);
    }
    if (!idle.empty()) out += fmt::format("{:<28}the model stood still: {}\n", "", idle);
    if (step.contains("bound_by")) {
      out += fmt::format("{:<28}bound by {}\n", "", Shown(step.at("bound_by")));
    }
  }
  return out;
}

double ToleranceFrom(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const bool percent = error == std::errc() && std::string_view(end, last) == "%";
  const double share = percent ? value / 100 : value;
  if (error != std::errc() || (end != last && !percent) || !(share >= 0 && share < 1)) {
    throw Error(Fault::kUsage, "--tolerance '" + Printable(text, 40) +
                                   "': it must be a percentage below 100, as 5%, or a share "
                                   "below 1, as 0.05");
  }
  return share;
}

void CheckComparable(const Json& now, const Json& before, const std::string& file) {
  if (!before.is_object() || !before.contains("ladder")) {
    throw Error(Fault::kUsage,
                "--compare " + Printable(file) + ": not written by tilery bench --save");
  }
  for (const Same& same : kSame) {
    if (!now.contains(same.key)) continue;
    const Json then = before.contains(same.key) ? before.at(same.key) : Json();
    if (now.at(same.key) == then) continue;
    throw Error(Fault::kUsage,
                fmt::format("--compare {}: it was measured with another {}: {} there, {} here; "
                            "choose the same, or save a new file with --save",
                            Printable(file), same.words, ShownOf(before, same.key),
                            ShownOf(now, same.key)));
  }
}

std::string Regression::words(const std::string& file, double tolerance) const {
  return fmt::format("{}: {} tiles/s, but {} in {}; with a tolerance of {:g} % at least {} are due",
                     step, Rate(now), Rate(before), Printable(file), tolerance * 100, Rate(limit));
}

std::vector<Regression> FindRegressions(const Json& now, const Json& before, double tolerance,
                                        const std::string& file) {
  std::vector<Regression> found;
  bool common = false;
  for (const char* step : kSteps) {
    const Json& ladder = before.at("ladder");
    if (!now.at("ladder").contains(step) || !ladder.contains(step)) continue;
    const Json& then = ladder.at(step);
    if (!then.is_object() || !then.contains("tiles_per_s") || !then.at("tiles_per_s").is_number()) {
      throw Error(Fault::kUsage, "--compare " + Printable(file) + ": ladder." + step +
                                     ".tiles_per_s is no number");
    }
    common = true;
    Regression r{step, now.at("ladder").at(step).at("tiles_per_s"), then.at("tiles_per_s"), 0};
    r.limit = r.before * (1 - tolerance);
    if (r.now < r.limit) found.push_back(r);
  }
  if (!common) {
    throw Error(Fault::kUsage, "--compare " + Printable(file) +
                                   ": it holds none of the steps measured now; choose others with "
                                   "--steps");
  }
  return found;
}

std::string CardOf(const std::string& device_kind) {
  return device_kind.substr(0, device_kind.find("/cudnn "));
}

}  // namespace tilery
