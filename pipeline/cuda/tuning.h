// Finds the fastest form of a model on one GPU: which layout, batch, graph or package, and which
// precision is good enough. The search and the choice are apart from the measuring, so that both
// can be tested without a GPU.
//
//   precision by precision, until one is near enough to fp32:
//     batch 1, 2, 4, ... x layouts   until memory ends, or two doublings in a row gain little
//     the best of these, eager       against its graph
//     packages                       each at what it was compiled for
//     -> Choose -> its outputs against fp32
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "pipeline/tuning.h"

namespace tilery::cuda {

// What the search asks of a card. Used by one thread.
class Bench {
 public:
  virtual ~Bench() = default;
  // Loads the model in this form, times it, and gives all its memory back. What does not fit or
  // fails is a trial that says so. Error(kUsage, kInternal): nothing can be measured any more.
  virtual Trial Measure(const ModelForm& form) = 0;
  // Of the form's outputs; all alike where the model itself can't run in fp32 (see
  // OutputError::unknown). Errors as LoadGpuModel.
  virtual OutputError ErrorOf(const ModelForm& form) = 0;
  // What a package was compiled for, or why it can't be used.
  virtual std::variant<ModelForm, std::string> FormOf(int package) = 0;
  virtual double seconds() const = 0;  // since the beginning
};

// Of the trials that ran: the smallest batch that any form reaches 97 % of the best rate with; at
// that batch the best form, or the first in a fixed order (the model as it is before packages in
// their order, nchw before nhwc, graphs before eager) of those that differ by less than 1 %, which
// is the noise of measuring. nullptr if none ran.
const Trial* Choose(const std::vector<Trial>& trials);

// Error(kUsage) for a request that asks for nothing. Error(kModel) with the model's own words if it
// can't be run in the last of the precisions, memory included (with the bytes asked and free);
// errors of the bench.
TuneResult Tune(const TuneRequest& request, Bench& bench);

}  // namespace tilery::cuda
