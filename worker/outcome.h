// The one place where exceptions become outcomes.
//
//   Error kInput, kOutput, kModel          -> Failed: the item fails, by name
//   Error kTransient, no memory            -> Retry: worth another attempt
//   LostFile                               -> LostBrick: another unit has to run again first
//   Abandoned                              -> nothing is reported: nobody waits for it
//   Error kUsage, kInternal, all others    -> Failed: a fault of the job or ours; repeating won't help
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "io/error.h"
#include "scheduler/outcome.h"

namespace tilery {

// A brick or stage file that an earlier unit made is missing or damaged.
class LostFile : public Error {
 public:
  LostFile(std::string key, int64_t unit, const std::string& reason)
      : Error(Fault::kTransient, reason), key_(std::move(key)), unit_(unit) {}
  const std::string& key() const { return key_; }
  int64_t unit() const { return unit_; }  // that makes it

 private:
  std::string key_;
  int64_t unit_;
};

// Thrown inside a unit whose lease was dropped, or when the worker ends.
class Abandoned : public Error {
 public:
  Abandoned() : Error(Fault::kTransient, "the unit was abandoned") {}
};

// `stage`: what the unit was doing, one of the profile's stage names. nullopt: report nothing.
std::optional<Outcome> OutcomeOf(const std::exception_ptr& error, const std::string& stage);

}  // namespace tilery
