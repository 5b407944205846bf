// What the tests of models on a GPU share.
#pragma once

#include <string>
#include <vector>

#include "io/error.h"
#include "pipeline/cuda/gpu_model.h"
#include "tests/pipeline/needs_gpu.h"

namespace tilery::cuda {

// Two tiles of 32x48 (or 16x16x24) in fp32, of a model of tests/models.py.
GpuModelOptions Options(const std::string& name);
GpuModelOptions Options3d(const std::string& name);

void Expect(int status);  // a cudaError_t: fails the test unless it is a success

std::vector<std::byte> Bytes(const GpuTensor& tensor, int64_t batch, Stream stream);
// Planar values, whatever type and layout they have on the GPU.
std::vector<float> Values(const GpuTensor& tensor, int64_t batch, int32_t channels, Stream stream);
// Of one run.
std::vector<float> Answer(GpuModel& model, const GpuModelOptions& o, int place);
// Of the same model on the CPU, to the trial values.
std::vector<float> OnCpu(const GpuModelOptions& o);
double Difference(const std::vector<float>& a, const std::vector<float>& b);  // the largest
// Writes another input, the trial values times `factor` (a power of two), to a place.
void Scale(GpuModel& model, const GpuModelOptions& o, int place, float factor);
// The message of loading, which must fail with this fault.
std::string WhatOf(const GpuModelOptions& options, Fault fault);

}  // namespace tilery::cuda
