#include "io/error.h"
#include "worker/backend.h"

namespace tilery {
namespace {

class CpuBackend final : public Backend {
 public:
  Numerics Describe(const std::string& device) const override { return DescribeDevice(device); }
  ModelProbe Probe(const std::filesystem::path& model, int dims, int32_t channels_in,
                   const Index& tile, bool batches) const override {
    return ProbeModel(model, dims, channels_in, tile, batches);
  }
  TuneResult Tune(const TuneRequest& request) const override {
    const std::string precision = request.precisions.empty() ? "" : request.precisions.front();
    const auto refuse = [](const std::string& key, const std::string& value,
                           const std::string& allowed) {
      throw Error(Fault::kUsage, key + " '" + Printable(value) + "' can't be had on a CPU; " + key +
                                     " may be: " + allowed);
    };
    if (precision != "fp32") refuse("model.precision", precision, "auto, fp32");
    if (!request.layout.empty() && request.layout != "nchw") {
      refuse("layout", request.layout, "nchw");
    }
    if (!request.packages.empty()) {
      refuse("a compiled model", request.packages.front().native(), "none");
    }
    TuneResult result;
    if (request.batch > 0) result.form.batch = request.batch;
    result.form.graph = false;
    result.how = "not measured: results on CPUs must not depend on how busy they are";
    result.error.unknown = "it runs in fp32 as it is";
    return result;
  }
  std::unique_ptr<Engine> Create(const BackendOptions& options, Profile& profile) const override {
    return Engine::Create(options.engine, profile);
  }
  std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options) const override {
    return MakeCpuForward(options);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() { return std::make_unique<CpuBackend>(); }

}  // namespace tilery
