// The two halves of the NIfTI container. Internal to io.
#pragma once

#include <memory>

#include "io/format.h"
#include "io/nifti_header.h"

namespace tilery {

// Samples as the header scales them: scl_slope and scl_inter give f32 (f64 where f64 is stored);
// without scaling the stored type. In a .nii.gz, rows come in order.
std::unique_ptr<Reader> OpenNifti(InputFile file);

// Gzipped where the target's name ends in .nii.gz. The header is that of the metadata with shape,
// type and scaling replaced, or a plain one; NIfTI-2 where an axis is longer than NIfTI-1 can say.
std::unique_ptr<Writer> CreateNifti(OutputFile& file, const WriteSpec& spec);

// Codes of NIfTI; DTypeOfNifti: false for types that are not supported.
bool DTypeOfNifti(int code, DType* dtype);
int NiftiOfDType(DType dtype);  // 0: can't be held

// Header and extensions as kept in Metadata::nifti.
struct NiftiParts {
  NiftiHeader header;
  std::string extensions;  // from the four extender bytes on, host order; empty: none
};
NiftiParts SplitNifti(const std::string& metadata);

}  // namespace tilery
