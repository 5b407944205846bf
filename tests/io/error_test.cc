#include "io/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

TEST(Error, CarriesFaultAndMessage) {
  const Error error(Fault::kModel, "the model threw");
  EXPECT_EQ(error.fault(), Fault::kModel);
  EXPECT_STREQ(error.what(), "the model threw");
}

TEST(Error, FaultNamesSurviveARoundTrip) {
  for (const Fault fault : {Fault::kUsage, Fault::kInput, Fault::kOutput, Fault::kModel,
                            Fault::kTransient, Fault::kInternal}) {
    EXPECT_EQ(FaultFromName(FaultName(fault)), fault);
  }
  EXPECT_THAT(ErrorOf(Fault::kInternal, [] { FaultFromName("bogus"); }), HasSubstr("bogus"));
}

TEST(Error, ErrnoNamesTheOperationAndTheReason) {
  EXPECT_EQ(Errno("write /out/a.png", ENOSPC), "write /out/a.png: No space left on device");
}

TEST(Printable, LeavesTextAloneInAnyLanguage) {
  EXPECT_EQ(Printable("photo 1.png"), "photo 1.png");
  EXPECT_EQ(Printable("f\xc3\xbcr/\xe6\x97\xa5\xe6\x9c\xac/\xf0\x9f\x98\x80.png"),
            "f\xc3\xbcr/\xe6\x97\xa5\xe6\x9c\xac/\xf0\x9f\x98\x80.png");
}

TEST(Printable, EscapesControlCharactersAndBytesThatAreNoUtf8) {
  EXPECT_EQ(Printable("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
  EXPECT_EQ(Printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(Printable("caf\xe9.png"), "caf\\xe9.png");
  EXPECT_EQ(Printable("\xc0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b") << "C1 control";
  EXPECT_EQ(Printable("\xe6\x97"), "\\xe6\\x97") << "cut sequence";
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Printable, CutsLongTextInTheMiddleAndKeepsBothEnds) {
  const std::string cut = Printable("/begin/" + std::string(1000, 'x') + "/end.png", 100);
  EXPECT_EQ(cut.size(), 100u);
  EXPECT_THAT(cut, ::testing::StartsWith("/begin/"));
  EXPECT_THAT(cut, ::testing::EndsWith("/end.png"));
  EXPECT_THAT(cut, HasSubstr("..."));
}

TEST(Printable, NeverCutsInsideACharacterWhateverTheLimit) {
  std::string name;
  for (int i = 0; i < 50; ++i) name += "\xe6\x97\xa5";
  for (size_t limit = 0; limit < 160; ++limit) {
    const std::string cut = Printable(name, limit);
    EXPECT_LE(cut.size(), std::max<size_t>(limit, 0));
    EXPECT_EQ(Printable(cut, 1000), cut) << "limit " << limit;
  }
}

}  // namespace
}  // namespace tilery
