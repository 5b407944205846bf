#include "worker/probe_tune.h"

#include <cmath>
#include <filesystem>

#include "io/error.h"
#include "scheduler/wire.h"
#include "worker/sample_tiles.h"

namespace tilery {
namespace {

constexpr int64_t kSampleTiles = 8;

Json ToJson(const ModelForm& form) {
  return {{"precision", form.precision},
          {"batch", form.batch},
          {"layout", form.layout},
          {"package", form.package},
          {"graph", form.graph}};
}

Json ToJson(const Trial& trial) {
  return {{"form", ToJson(trial.form)},
          {"end", TrialEndName(trial.end)},
          {"slots", trial.slots},
          {"tiles_per_s", trial.tiles_per_s},
          {"bytes", trial.bytes},
          {"seconds", trial.seconds},
          {"how", Printable(trial.how, 1000)}};
}

Json ToJson(const OutputError& error) {
  return {{"tiles", error.tiles},
          {"max", error.max},
          {"mean", error.mean},
          {"lowest", error.lowest},
          {"highest", error.highest},
          {"nonfinite", error.nonfinite},
          {"real_input", error.real_input},
          {"unknown", Printable(error.unknown, 1000)}};
}

Json ToJson(const TuneResult& result) {
  Json trials = Json::array(), notes = Json::array();
  for (const Trial& trial : result.trials) trials.push_back(ToJson(trial));
  for (const std::string& note : result.notes) notes.push_back(Printable(note, 1000));
  return {{"error", ""},
          {"fault", ""},
          {"form", ToJson(result.form)},
          {"how", Printable(result.how, 1000)},
          {"slots", result.slots},
          {"tiles_per_s", result.tiles_per_s},
          {"bytes", result.bytes},
          {"memory", result.memory},
          {"output_error", ToJson(result.error)},
          {"trials", std::move(trials)},
          {"notes", std::move(notes)}};
}

void Read(const Json& tune, TuneRequest& request) {
  request.compiled_only = request.model.empty();
  request.channels_out = tune.at("channels_out");
  if (const auto scale = tune.find("scale"); scale != tune.end()) {
    for (size_t a = 0; a < 3; ++a) {
      request.scale[a] = Rational::Of(scale->at(2 * a), scale->at(2 * a + 1));
    }
  }
  for (const Json& package : tune.value("packages", Json::array())) {
    request.packages.emplace_back(package.get<std::string>());
  }
  request.precisions = tune.value("precisions", request.precisions);
  if (tune.contains("max_error")) request.max_error = tune.at("max_error").get<double>();
  request.batch = tune.value("batch", request.batch);
  request.layout = tune.value("layout", request.layout);
  request.memory = tune.value("memory", request.memory);
  request.reserve = tune.value("reserve", request.reserve);
  request.lanes = tune.value("lanes", request.lanes);
  request.seconds = tune.value("seconds", request.seconds);
}

}  // namespace

Json Untuned(Fault fault, const std::string& why) {
  return {{"error", Printable(why, 4000)}, {"fault", FaultName(fault)}};
}

Json AnswerTune(const Json& tune, TuneRequest request, const Backend& backend) {
  std::string unread;
  try {
    Read(tune, request);
    if (const auto sample = tune.find("sample"); sample != tune.end()) {
      const UnitWork work = UnitWorkFromJson(sample->at("work"));
      const ItemParams params = ItemParamsFromJson(sample->at("params"));
      try {
        request.tiles = SampleTiles(work, params, kSampleTiles);
      } catch (const Error& e) {
        // Whoever runs the unit will say it of the item.
        unread = std::string("errors were not measured on the input: ") + e.what();
      }
    }
    TuneResult result = backend.Tune(request);
    if (!unread.empty()) result.notes.push_back(std::move(unread));
    return ToJson(result);
  } catch (const Json::exception&) {
    throw;
  } catch (const Error& e) {
    return Untuned(e.fault(), e.what());
  } catch (const std::exception& e) {
    return Untuned(Fault::kInternal, e.what());
  }
}

}  // namespace tilery
