// Checks that a message names what it must.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tilery {

inline void ExpectWords(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos)
        << "'" << word << "' is missing in: " << message;
  }
}

}  // namespace tilery
