#include "worker/backend.h"

namespace tilery {
namespace {

class CpuBackend final : public Backend {
 public:
  Numerics Describe(const std::string& device) const override { return DescribeDevice(device); }
  ModelProbe Probe(const std::filesystem::path& model, int dims, int32_t channels_in,
                   const Index& tile) const override {
    return ProbeModel(model, dims, channels_in, tile);
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
