// The passes of one kind of item through the model. Pure.
#pragma once

#include <string>

#include "scheduler/job.h"

namespace tilery {

// What `post` makes of the model's channels.
struct PostResult {
  bool labels = false;         // argmax or threshold
  bool probabilities = false;  // sigmoid or softmax, no labels
  std::vector<double> values;  // the labels that can occur
};
// Error(kUsage) if a step doesn't fit the model's channels.
PostResult JudgePost(const std::vector<PostOp>& post, int32_t channels_out);

// Fills model range, mean, std, passes, accumulators and post of `transfer` for stored samples like
// `header`; sets `alpha` to the output's kind of alpha. Returns why not, with the way out, or "".
std::string FillPasses(const Job& job, const Contract& contract, const Header& header,
                       const PostResult& post, bool scaled, bool may_keep_alpha, Transfer& transfer,
                       AlphaKind& alpha);

}  // namespace tilery
