// Runs something that must throw Error, and returns the message for further checks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "io/error.h"

namespace tilery {

inline std::string ErrorOf(Fault fault, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_STREQ(FaultName(error.fault()), FaultName(fault)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace tilery
