// From templates to the final path of each item.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/inputs.h"

namespace tilery {

// Replaces each {field} by `value_of(field)`. Error(kUsage) naming the nearest for an unknown
// field, and "not supported yet" for {t}, {c} and {grid}. "{{" and "}}" stand for braces.
std::string ExpandFields(const std::string& output_template,
                         const std::function<std::string(const std::string& field)>& value_of);

// The file name up to its known extension, and that extension with its dot (".nii.gz" counts as
// one).
std::pair<std::string, std::string> SplitExtension(const std::string& file_name);

}  // namespace tilery
