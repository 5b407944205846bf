#include "cluster/message.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

TEST(Message, StringsAreBytes) {
  const std::string path("a\xff\xfe\0b", 5);
  const Json back = DecodeBody(EncodeFrame({{"type", "x"}, {"path", path}}).substr(4));
  EXPECT_EQ(back.at("path").get<std::string>(), path);
}

TEST(Message, ABodyWithoutATypeIsRefused) {
  for (const Json& json : {Json::array({1}), Json({{"a", 1}}), Json({{"type", 1}})}) {
    ErrorOf(Fault::kInternal, [&] { DecodeBody(EncodeFrame(json).substr(4)); });
  }
}

TEST(Token, IsSixtyFourHexDigitsAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string token = NewToken();
    EXPECT_EQ(token.size(), 64u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(seen.insert(token).second);
  }
}

TEST(Token, IsTheSameOnlyIfEveryByteIs) {
  const std::string token = NewToken();
  EXPECT_TRUE(SameToken(token, token));
  EXPECT_FALSE(SameToken(token, ""));
  EXPECT_FALSE(SameToken(token, token.substr(1)));
  std::string other = token;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(SameToken(token, other));
}

}  // namespace
}  // namespace tilery
