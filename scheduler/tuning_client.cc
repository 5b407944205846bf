#include "scheduler/tuning_client.h"

namespace tilery {
namespace {

Tuning FromAnswer(const Json& answer) {
  const Json& tuned = answer.at("tuned");
  Tuning tuning;
  const Json& form = tuned.at("form");
  form.at("batch").get_to(tuning.batch);
  form.at("layout").get_to(tuning.layout);
  form.at("package").get_to(tuning.package);
  form.at("graph").get_to(tuning.graph);
  tuned.at("how").get_to(tuning.how);
  tuned.at("slots").get_to(tuning.slots);
  tuned.at("tiles_per_s").get_to(tuning.tiles_per_s);
  tuned.at("bytes").get_to(tuning.bytes);
  const Json& error = tuned.at("output_error");
  error.at("tiles").get_to(tuning.error.tiles);
  error.at("nonfinite").get_to(tuning.error.nonfinite);
  error.at("max").get_to(tuning.error.max);
  error.at("mean").get_to(tuning.error.mean);
  error.at("lowest").get_to(tuning.error.lowest);
  error.at("highest").get_to(tuning.error.highest);
  error.at("real_input").get_to(tuning.error.real_input);
  error.at("unknown").get_to(tuning.error.unknown);
  tuned.at("notes").get_to(tuning.notes);
  return tuning;
}

Json Question(const TuningRequest& request, const std::string& device) {
  Json scale = Json::array(), packages = Json::array();
  for (const Rational& r : request.scale) {
    scale.push_back(r.num);
    scale.push_back(r.den);
  }
  for (const TuningRequest::Package& package : request.packages)
    packages.push_back(package.path.string());
  Json tune = {
      {"channels_out", request.channels_out}, {"scale", scale},          {"packages", packages},
      {"precisions", {request.precision}},    {"batch", request.batch},  {"memory", request.memory},
      {"reserve", request.reserve},           {"layout", request.layout}};
  if (!request.work.is_null())
    tune["sample"] = {{"work", request.work}, {"params", request.params}};
  return {{"model", request.compiled_only ? "" : request.model},
          {"libraries", request.libraries},
          {"dims", request.dims},
          {"channels_in", request.channels_in},
          {"tile", request.tile},
          {"device", device},
          {"tune", tune}};
}

// What the answer depends on: models by their content, not by where they lie, and the card by its
// kind.
Json KeyOf(const TuningRequest& request, const DeviceSeat& seat, Json question) {
  Json packages = Json::array();
  for (const TuningRequest::Package& package : request.packages) packages.push_back(package.hash);
  question["model"] = request.model_hash;  // the libraries are in it
  question.erase("libraries");
  question["device"] = {request.device_kind, seat.memory};
  question["tune"]["packages"] = packages;
  if (request.any_input) question["tune"].erase("sample");
  return question;
}

}  // namespace

Tuning AskTuning(const TuningRequest& request, const DeviceSeat& seat,
                 std::vector<std::string>& warnings) {
  ChildQuestion question;
  question.question = Question(request, seat.device);
  question.key = KeyOf(request, seat, question.question);
  question.environment = seat.EnvironmentFor(request.precision);
  question.any_host = true;
  question.sound = [](const Json& answer) {
    return answer.at("tuned").at("error").get<std::string>().empty() &&
           FromAnswer(answer).batch > 0;
  };
  const Json answer = AskChild(question, seat, warnings);
  try {
    const Json& tuned = answer.at("tuned");
    if (const std::string error = tuned.at("error"); !error.empty())
      throw Error(tuned.at("fault") == "transient" ? Fault::kTransient : Fault::kUsage, error);
    return FromAnswer(answer);
  } catch (const nlohmann::json::exception& e) {
    throw NotUnderstood(seat, e);
  }
}

}  // namespace tilery
