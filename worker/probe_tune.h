// The JSON of tuning, as worker/probe.h describes it.
#pragma once

#include "cluster/message.h"
#include "io/error.h"
#include "worker/backend.h"

namespace tilery {

// "tuned" for "tune". `request` holds what the rest of the question says: model, dims, channels_in,
// tile. Never throws for what a model does. Json::exception for a question of another form.
Json AnswerTune(const Json& tune, TuneRequest request, const Backend& backend);

// "tuned" where nothing could be asked of the model.
Json Untuned(Fault fault, const std::string& why);

}  // namespace tilery
