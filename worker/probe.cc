#include "worker/probe.h"

#include "cluster/message.h"
#include "io/error.h"
#include "pipeline/engine.h"
#include "pipeline/operator_libraries.h"
#include "worker/probe_tune.h"

namespace tilery {

std::string AnswerProbe(const std::string& request, const Backend& backend) {
  const auto reading = [](const auto& read) {
    try {
      return read();
    } catch (const Json::exception& e) {
      throw Error(Fault::kUsage, std::string("--probe: the request on standard input is no JSON "
                                             "object as expected: ") +
                                     e.what());
    }
  };
  std::string model, device;
  int dims = 2;
  int32_t channels_in = 0;
  Index tile{1, 1, 1};
  std::vector<std::string> libraries;
  const Json json = reading([&] {
    Json json = Json::parse(request);
    model = json.value("model", std::string());
    dims = json.value("dims", 2);
    channels_in = json.value("channels_in", 0);
    tile = json.value("tile", tile);
    device = json.value("device", std::string("cpu"));
    libraries = json.value("libraries", libraries);
    return json;
  });

  const bool tunes = json.contains("tune");
  ModelProbe probe;
  std::string refused;
  try {
    for (const std::string& library : libraries) LoadOperatorLibrary(library, 2);
  } catch (const Error& e) {
    refused = e.what();
  }
  if (!model.empty() && !tunes && refused.empty()) {
    try {
      probe = backend.Probe(model, dims, channels_in, tile, json.value("batches", false));
    } catch (const std::exception& e) {
      probe.error = e.what();
    }
  }
  const Numerics numerics = backend.Describe(device);
  Json scale = Json::array();
  for (const Rational& r : probe.scale) {
    scale.push_back(r.num);
    scale.push_back(r.den);
  }
  Json answer{{"runs", probe.runs},
              {"error", Printable(probe.error, 4000)},
              {"channels_in", probe.channels_in},
              {"channels_out", probe.channels_out},
              {"scale", std::move(scale)},
              {"apart", probe.apart},
              {"numerics",
               {{"batch", numerics.batch},
                {"precision", numerics.precision},
                {"layout", numerics.layout},
                {"device_kind", numerics.device_kind},
                {"torch", numerics.torch}}}};
  if (!refused.empty()) answer["refused"] = Printable(refused, 4000);
  if (tunes && !refused.empty()) answer["tuned"] = Untuned(Fault::kUsage, refused);
  if (tunes && refused.empty()) {
    TuneRequest question;
    question.model = model;
    question.dims = dims;
    question.channels_in = channels_in;
    question.tile = tile;
    answer["tuned"] =
        reading([&] { return AnswerTune(json.at("tune"), std::move(question), backend); });
  }
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tilery
