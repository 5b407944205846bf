// What a scheduler asks of a one-shot child, since it has no Torch itself.
#pragma once

#include <string>

#include "worker/backend.h"

namespace tilery {

// `request`: {"model": path or "", "dims": 2|3, "channels_in": 0 = unknown, "tile": [z,y,x],
// "device": "cpu" or "cuda:0", "libraries": [path, ...] of operators, loaded first, "tune": {...}
// or absent}. The answer, one line of JSON:
//   {"runs", "error", "channels_in", "channels_out", "scale": [zn,zd,yn,yd,xn,xd],
//    "apart": false if "batches": true asked, and what it makes of a tile depends on the batch,
//    "numerics": {"batch", "precision", "layout", "device_kind", "torch"}, "tuned": {...}}
// and "refused", a text, if a library can't be loaded: then there is no more to say of the model.
// Without a model only the numerics are filled in. Never throws for what a model does: `error` says
// it. Error(kUsage) for a request that is none.
//
// With "tune" and no model there are packages alone. The model is not probed (its fields are those
// of an answer without a model) but tuned, as pipeline/tuning.h says. All fields but channels_out
// may be left out:
//   {"channels_out", "scale": [zn,zd,yn,yd,xn,xd], "packages": [path, ...],
//    "precisions": ["fp16", "tf32", "fp32"], "max_error": number, "batch": 0, "layout": "",
//    "memory": bytes, "reserve": bytes, "lanes": 1, "seconds": 10,
//    "sample": {"work": {...}, "params": {...}}}
// `sample`: an infer unit and its parameters in the form of scheduler/wire.h, whose first tiles are
// what errors are measured on; what keeps it from being read becomes a note. And "tuned":
//   {"error": "" or why there is no answer, "fault": "" or "usage", "model", "transient", ...,
//    "form": {"precision", "batch", "layout", "package": index or -1, "graph": bool},
//    "how", "slots", "tiles_per_s", "bytes", "memory",
//    "output_error": {"tiles", "max", "mean", "lowest", "highest", "nonfinite", "real_input",
//                     "unknown"},
//    "trials": [{"form": {...}, "end": "ran"|"no memory"|"failed", "slots", "tiles_per_s",
//                "bytes", "seconds", "how"}, ...],
//    "notes": [text, ...]}
std::string AnswerProbe(const std::string& request, const Backend& backend);

}  // namespace tilery
