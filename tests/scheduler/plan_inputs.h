// Jobs, contracts and headers for tests of the planner, made without files.
#pragma once

#include <string>
#include <vector>

#include "scheduler/planner.h"

namespace tilery {

inline Header HeaderOf(const std::string& format, const Index& shape, int32_t channels,
                       DType dtype = DType::kU8, AlphaKind alpha = AlphaKind::kNone) {
  Header header;
  header.format = format;
  header.dtype = dtype;
  header.dims = format == "npy" || format == "nifti" ? 3 : 2;
  header.alpha = alpha;
  header.access = format == "png" || format == "jpeg" ? Access::kRows : Access::kRandom;
  header.channels = channels;
  header.shape = shape;
  return header;
}

inline InputHeader InputOf(const std::string& path, const Header& header) {
  InputHeader input;
  input.path = path;
  input.header = header;
  input.stamp = {1000, 1, 2, std::hash<std::string>()(path)};
  input.identity = input.stamp;
  return input;
}

inline Job JobOf(const std::string& output = "/o/{stem}.png") {
  Job job;
  job.name = "job";
  job.outputs.resize(1);
  job.outputs[0].path = output;
  return job;
}

inline Extent Voxels(std::vector<double> values) {
  return {Extent::Kind::kVoxels, std::move(values)};
}

inline Contract ContractOf(int32_t in, int32_t out, Rational scale = {}) {
  Contract contract;
  contract.channels_in = in;
  contract.channels_out = out;
  contract.scale = std::vector<Rational>{scale};
  contract.range = std::array<double, 2>{0, 1};
  contract.order = "rgb";
  contract.multiple = std::vector<int64_t>{1};
  return contract;
}

}  // namespace tilery
