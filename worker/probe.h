// What a scheduler asks of a one-shot child, since it has no Torch itself.
#pragma once

#include <string>

#include "worker/backend.h"

namespace tilery {

// `request`: {"model": path or "", "dims": 2|3, "channels_in": 0 = unknown, "tile": [z,y,x],
// "device": "cpu" or "cuda:0"}. The answer, one line of JSON:
//   {"runs", "error", "channels_in", "channels_out", "scale": [zn,zd,yn,yd,xn,xd],
//    "numerics": {"batch", "precision", "layout", "device_kind", "torch"}}
// Without a model only the numerics are filled in. Never throws for what a model does: `error` says
// it. Error(kUsage) for a request that is none.
std::string AnswerProbe(const std::string& request, const Backend& backend);

}  // namespace tilery
