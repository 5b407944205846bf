#include "pipeline/cuda/tuning.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <tuple>
#include <utility>

#include "io/error.h"

namespace tilery::cuda {
namespace {

constexpr double kGoodEnough = 0.97;  // of the best rate
constexpr double kNoise = 0.01;
constexpr double kGain = 1.03;         // a doubling that brings less is a flat one
constexpr double kBehind = 0.95;       // a layout below that share of the other's rate loses,
constexpr double kFarBehind = 0.75;    // for good below this one, once launches count no more
constexpr double kLongestBatch = 1.0;  // seconds: a worker ends between batches, in seven of them
constexpr int64_t kLargestBatch = 65536;
constexpr double kGrowth = 2.2;  // a trial takes at most so many times the one of half its batch

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// One layout on its way through the batches.
struct Line {
  std::string layout;
  bool graph = true;
  bool alive = true;
  int losses = 0;  // in a row
  double seconds = 0;
};

class Tuning {
 public:
  Tuning(const TuneRequest& request, Bench& bench) : request_(request), bench_(bench) {}

  TuneResult Run() {
    for (size_t i = 0; i < request_.precisions.size(); ++i) {
      precision_ = request_.precisions[i];
      next_ = i + 1 < request_.precisions.size() ? &request_.precisions[i + 1] : nullptr;
      first_ = result_.trials.size();
      // Without the model as it is there is nothing to look at, and nothing to compare with.
      if (!request_.compiled_only) {
        if (next_ != nullptr && !WorthASearch()) continue;
        Search();
      }
      TryPackages();
      if (Settle()) break;
    }
    return std::move(result_);
  }

 private:
  // ---- Measuring ----

  const Trial& Try(const ModelForm& form) {
    result_.trials.push_back(bench_.Measure(form));
    return result_.trials.back();
  }

  bool TimeFor(double seconds) const { return bench_.seconds() + seconds <= request_.seconds; }

  // Whether a look at one tile speaks for this precision; most of the time is for the one that is
  // taken.
  bool WorthASearch() {
    ModelForm form;
    form.precision = precision_;
    form.graph = false;
    try {
      const OutputError error = bench_.ErrorOf(form);
      if (!TooFar(error)) return true;
      FallBack(error);
    } catch (const Error& e) {
      if (e.fault() != Fault::kModel) throw;
      Note(precision_ + " can't be used: " + e.what() + "; " + *next_ + " is used");
    }
    return false;
  }

  void Search() {
    std::vector<Line> lines;
    for (const char* layout : {"nchw", "nhwc"}) {
      if (request_.layout.empty() || request_.layout == layout) lines.push_back({layout});
    }
    if (request_.batch > 0) {
      for (Line& line : lines) {
        if (&line == &lines.front() || TimeFor(lines.front().seconds)) Step(line, request_.batch);
      }
    } else {
      Double(lines);
    }
    const Trial* const best = Best();
    if (best == nullptr || !best->form.graph || best->how.rfind("eager", 0) == 0) return;
    if (!TimeFor(best->seconds)) return;
    ModelForm eager = best->form;
    eager.graph = false;
    Try(eager);
  }

  void Double(std::vector<Line>& lines) {
    double best = 0;
    int flat = 0;
    for (int64_t batch = 1; batch <= kLargestBatch && flat < 2; batch *= 2) {
      double here = 0;
      std::vector<std::pair<Line*, double>> rates;
      for (Line& line : lines) {
        // Something has to be measured, however slow it is.
        const bool must = batch == 1 && &line == &lines.front();
        if (!line.alive || (!must && !TimeFor(Guess(lines, line, batch)))) continue;
        const double rate = Step(line, batch);
        rates.emplace_back(&line, rate);
        here = std::max(here, rate);
      }
      if (here == 0) return;
      for (auto& [line, rate] : rates) {
        line->losses = rate < kBehind * here ? line->losses + 1 : 0;
        if (line->losses == 2 || (batch > 1 && rate < kFarBehind * here)) line->alive = false;
      }
      flat = batch > 1 && here < kGain * best ? flat + 1 : 0;
      best = std::max(best, here);
      if (2 * static_cast<double>(batch) / here > kLongestBatch) return;
    }
  }

  // Seconds that the next trial of a line may take.
  static double Guess(const std::vector<Line>& lines, const Line& line, int64_t batch) {
    return batch == 1 ? lines.front().seconds : kGrowth * line.seconds;
  }

  // One batch of a layout; 0 if it did not run, which ends the line. Where not even the first batch
  // leaves room for a graph's own memory, the layout goes on eager.
  double Step(Line& line, int64_t batch) {
    const bool first = batch == 1 || request_.batch > 0;
    for (;;) {
      const Trial& trial = Try({precision_, batch, line.layout, -1, line.graph});
      line.seconds = trial.seconds;
      if (trial.end == Trial::End::kRan) return trial.tiles_per_s;
      if (!first || !line.graph || trial.end != Trial::End::kNoMemory) break;
      line.graph = false;
    }
    line.alive = false;
    return 0;
  }

  void TryPackages() {
    for (int i = 0; i < static_cast<int>(request_.packages.size()); ++i) {
      std::variant<ModelForm, std::string> found = bench_.FormOf(i);
      Trial refused;
      refused.form.package = i;
      refused.form.precision = precision_;
      refused.end = Trial::End::kFailed;
      if (const auto* const why = std::get_if<std::string>(&found)) {
        refused.how = *why;
      } else {
        ModelForm form = std::get<ModelForm>(found);
        if (form.precision != precision_) continue;
        refused.form = form;
        const bool batch = request_.batch == 0 || form.batch == request_.batch;
        const bool layout = request_.layout.empty() || form.layout == request_.layout;
        if (batch && layout) {
          Try(form);
          continue;
        }
        refused.how = "it was compiled for " +
                      (batch ? "layout " + form.layout + ", and wanted is " + request_.layout
                             : "batch " + std::to_string(form.batch) + ", and wanted is " +
                                   std::to_string(request_.batch));
      }
      result_.trials.push_back(std::move(refused));
    }
  }

  // ---- Choosing ----

  std::vector<Trial> Candidates() const {
    std::vector<Trial> candidates(result_.trials.begin() + static_cast<std::ptrdiff_t>(first_),
                                  result_.trials.end());
    std::erase_if(candidates, [&](const Trial& trial) {
      return std::find(barred_.begin(), barred_.end(), trial.form) != barred_.end();
    });
    return candidates;
  }

  // Valid until the next call or trial.
  const Trial* Best() {
    candidates_ = Candidates();
    return Choose(candidates_);
  }

  // Takes the best form that is near enough to fp32. False: the next precision has to do.
  bool Settle() {
    for (;;) {
      const Trial* const best = Best();
      if (best == nullptr) return NoneRan();
      OutputError error = bench_.ErrorOf(best->form);
      if (!TooFar(error)) return Take(*best, std::move(error));
      if (best->form.package >= 0) {
        Note("package " + Printable(request_.packages[best->form.package].native()) +
             " is not used: " + Said(error));
        barred_.push_back(best->form);
        // With no other form left it would be the model that can't be run.
        if (Best() != nullptr || next_ != nullptr) continue;
        throw Error(Fault::kModel, result_.notes.back() + ", and " + NothingElse());
      }
      if (next_ == nullptr) {
        Note(Said(error) + "; there is no wider precision to use");
        return Take(*best, std::move(error));
      }
      FallBack(error);
      return false;
    }
  }

  bool NoneRan() {
    const std::string why = NothingElse();
    if (next_ == nullptr) throw Error(Fault::kModel, why);
    Note(precision_ + " can't be used: " + why + "; " + *next_ + " is used");
    return false;
  }

  // The first reason is that of the smallest batch.
  std::string NothingElse() const {
    for (size_t i = first_; i < result_.trials.size(); ++i) {
      if (result_.trials[i].end != Trial::End::kRan) return result_.trials[i].how;
    }
    return "no form of the model is near enough to fp32";
  }

  bool Take(const Trial& trial, OutputError error) {
    result_.form = trial.form;
    result_.how = trial.how;
    result_.slots = trial.slots;
    if (trial.slots != "all") {
      Note("of a batch of " + std::to_string(trial.form.batch) + " the slots " + trial.slots +
           " are used: in others, or beside other tiles, what the model makes of a tile differs in "
           "its last bits");
    }
    result_.tiles_per_s = trial.tiles_per_s;
    result_.bytes = trial.bytes;
    const auto graph =
        std::find_if(result_.trials.begin(), result_.trials.end(), [&](const Trial& other) {
          ModelForm form = other.form;
          form.graph = false;
          return other.form.graph && form == trial.form;
        });
    if (!trial.form.graph && graph != result_.trials.end()) {
      result_.how = graph->end == Trial::End::kRan
                        ? "eager: faster than its graph, " + Short(trial.tiles_per_s) +
                              " against " + Short(graph->tiles_per_s) + " tiles/s"
                        : "eager: with a graph it does not fit: " + graph->how;
    }
    result_.error = std::move(error);
    return true;
  }

  bool TooFar(const OutputError& error) const {
    return error.nonfinite > 0 || (request_.max_error && error.max > *request_.max_error);
  }

  std::string Said(const OutputError& error) const {
    std::string said = "outputs in " + precision_;
    if (error.nonfinite > 0) {
      return said + " are not finite " + std::to_string(error.nonfinite) +
             " times where those in fp32 are";
    }
    return said + " differ from those in fp32 by up to " + Short(error.max) +
           ", more than model.max_error " + Short(request_.max_error.value_or(0));
  }

  void FallBack(const OutputError& error) { Note(Said(error) + ": " + *next_ + " is used"); }
  void Note(std::string note) { result_.notes.push_back(std::move(note)); }

  const TuneRequest& request_;
  Bench& bench_;
  TuneResult result_;
  std::string precision_;
  const std::string* next_ = nullptr;  // precision to fall back to
  size_t first_ = 0;                   // trial of this precision
  std::vector<ModelForm> barred_;      // too far from fp32
  std::vector<Trial> candidates_;
};

// The fixed order of forms with one batch.
auto OrderOf(const ModelForm& form) {
  return std::tuple(form.package, form.layout != "nchw", !form.graph);
}

}  // namespace

const Trial* Choose(const std::vector<Trial>& trials) {
  const auto ran = [](const Trial& trial) { return trial.end == Trial::End::kRan; };
  double best = 0;
  for (const Trial& trial : trials) {
    if (ran(trial)) best = std::max(best, trial.tiles_per_s);
  }
  const auto good = [&](const Trial& trial) {
    return ran(trial) && trial.tiles_per_s >= kGoodEnough * best;
  };
  std::optional<int64_t> batch;
  for (const Trial& trial : trials) {
    if (good(trial)) batch = std::min(batch.value_or(trial.form.batch), trial.form.batch);
  }
  if (!batch) return nullptr;
  double here = 0;
  for (const Trial& trial : trials) {
    if (ran(trial) && trial.form.batch == *batch) here = std::max(here, trial.tiles_per_s);
  }
  const Trial* chosen = nullptr;
  for (const Trial& trial : trials) {
    if (!good(trial) || trial.form.batch != *batch) continue;
    if (trial.tiles_per_s < (1 - kNoise) * here) continue;
    if (chosen == nullptr || OrderOf(trial.form) < OrderOf(chosen->form)) chosen = &trial;
  }
  return chosen;
}

TuneResult Tune(const TuneRequest& request, Bench& bench) {
  const bool layout =
      request.layout.empty() || request.layout == "nchw" || request.layout == "nhwc";
  if (request.precisions.empty() || !layout || request.batch < 0 || request.batch > kLargestBatch) {
    throw Error(Fault::kUsage, "tuning: " + std::to_string(request.precisions.size()) +
                                   " precisions, layout '" + Printable(request.layout) +
                                   "', batch " + std::to_string(request.batch) +
                                   "; wanted are one or more, nchw, nhwc or none, 0 to " +
                                   std::to_string(kLargestBatch));
  }
  return Tuning(request, bench).Run();
}

}  // namespace tilery::cuda
