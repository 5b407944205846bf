#include "worker/unit_env.h"

namespace tilery {

const ItemParams& UnitEnv::params(const UnitWork& work) const {
  if (work.params < 0 || static_cast<size_t>(work.params) >= context->params.size()) {
    throw Error(Fault::kInternal, "the unit names parameters " + std::to_string(work.params) +
                                      " of " + std::to_string(context->params.size()));
  }
  return context->params[static_cast<size_t>(work.params)];
}

std::shared_ptr<const Transfer> UnitEnv::transfer(const UnitWork& work) const {
  return {context, &params(work).transfer};
}

void CheckWanted(const UnitEnv& env, const UnitTask& task) {
  if (task.dropped || env.stopping) throw Abandoned();
}

}  // namespace tilery
