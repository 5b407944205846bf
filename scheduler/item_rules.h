// What becomes of the items of one kind (type, channels, alpha, format): passes through the model,
// types and channels on both sides. Pure.
#pragma once

#include <string>

#include "scheduler/job.h"
#include "scheduler/plan.h"

namespace tilery {

struct ItemRules {
  std::string refused;  // why items of this kind take no part ("" = they do)
  ItemParams params;
};

// Rules for items with `header` (its shape is not looked at) written as `output_format`.
// channels_in and channels_out of the contract are set. Items that don't fit are refused with the
// way out; what is wrong for every item (a post step that doesn't fit the model, a label beyond
// output.dtype) is Error(kUsage).
ItemRules DecideItem(const Job& job, const Contract& contract, const Tiling& tiling, int dims,
                     const Header& header, const std::string& output_format);

// Channels without alpha.
int32_t ColoursOf(const Header& header);
Index OutputShape(const Index& shape, const Tiling& tiling);  // ceil(shape * scale)

}  // namespace tilery
