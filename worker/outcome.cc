#include "worker/outcome.h"

#include <new>

namespace tilery {

std::optional<Outcome> OutcomeOf(const std::exception_ptr& error, const std::string& stage) {
  try {
    std::rethrow_exception(error);
  } catch (const Abandoned&) {
    return std::nullopt;
  } catch (const LostFile& lost) {
    return LostBrick{lost.key(), lost.what(), lost.unit()};
  } catch (const Error& e) {
    if (e.fault() == Fault::kTransient) return Retry{stage, e.what()};
    return Failed{stage, e.what(), e.fault()};
  } catch (const std::bad_alloc&) {
    return Retry{stage, "out of memory; fewer workers or a smaller execution.unit_memory need less"};
  } catch (const std::exception& e) {
    return Failed{stage, std::string("internal fault: ") + e.what(), Fault::kInternal};
  } catch (...) {
    return Failed{stage, "internal fault: an exception of unknown type", Fault::kInternal};
  }
}

}  // namespace tilery
