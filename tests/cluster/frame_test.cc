#include "cluster/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "cluster/message.h"
#include "tests/io/expect_error.h"

namespace tilery {
namespace {

TEST(FrameReader, PutsFramesTogetherWhateverTheCuts) {
  std::string stream;
  for (int i = 0; i < 50; ++i) {
    stream += EncodeFrame(
        {{"type", "x"}, {"n", i}, {"text", std::string(static_cast<size_t>(i * 7), 'a')}});
  }
  for (size_t step : {1u, 2u, 3u, 5u, 17u, 1000u, 100000u}) {
    FrameReader reader(kMaxFrame);
    int next = 0;
    for (size_t at = 0; at < stream.size(); at += step) {
      reader.Append(std::string_view(stream).substr(at, step));
      while (const auto body = reader.Next()) EXPECT_EQ(DecodeBody(*body).at("n"), next++);
    }
    EXPECT_EQ(next, 50);
  }
}

TEST(FrameReader, AHugeLengthIsRefusedBeforeAnythingIsAllocated) {
  FrameReader reader(kMaxHello);
  reader.Append("\xff\xff\xff\x7f");
  const std::string why = ErrorOf(Fault::kInternal, [&] { reader.Next(); });
  EXPECT_NE(why.find("2147483647"), std::string::npos) << why;
  EXPECT_NE(why.find("4096"), std::string::npos) << why;
}

TEST(CheckMessagePack, AcceptsWhatWeWrite) {
  const Json json = {{"null", nullptr},
                     {"t", true},
                     {"i", -5},
                     {"big", int64_t{1} << 60},
                     {"d", 0.5},
                     {"s", std::string(70000, 's')},
                     {"a", std::vector<int>(70000, 3)},
                     {"o", {{"x", {1, 2}}}}};
  EXPECT_NO_THROW(CheckMessagePack(EncodeFrame(json).substr(4)));
}

TEST(CheckMessagePack, RefusesEveryCutAndEverythingBehindTheEnd) {
  const std::string body =
      EncodeFrame({{"type", "x"}, {"a", {1, "two", 3.0, {{"k", nullptr}}}}}).substr(4);
  for (size_t length = 0; length < body.size(); ++length) {
    EXPECT_THROW(CheckMessagePack(body.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(CheckMessagePack(body + "x"), Error);
}

TEST(CheckMessagePack, RefusesNestingThatWouldExhaustAStack) {
  EXPECT_THROW(CheckMessagePack(std::string(1 << 20, '\x91')), Error);
}

TEST(CheckMessagePack, RefusesCountsThatTheBodyCannotHold) {
  EXPECT_THROW(CheckMessagePack(std::string("\xdd\xff\xff\xff\xff", 5)), Error);
  EXPECT_THROW(CheckMessagePack(std::string("\xdf\xff\xff\xff\xff", 5)), Error);
  EXPECT_THROW(CheckMessagePack(std::string("\xdb\xff\xff\xff\xff", 5)), Error);
}

TEST(CheckMessagePack, RefusesValuesThatMultiplyInMemory) {
  std::string body("\xdd\x00\x80\x00\x00", 5);  // 8 million nulls
  body += std::string(8 << 20, '\xc0');
  EXPECT_THROW(CheckMessagePack(body), Error);
}

TEST(DecodeBody, RandomBytesAndFlippedBitsAreErrorsNeverCrashes) {
  std::mt19937 random(3);
  const std::string good = EncodeFrame({{"type", "outcome"},
                                        {"lease", 1},
                                        {"unit", 2},
                                        {"o", {{"is", "done"}, {"x", {1, 2, 3}}}}})
                               .substr(4);
  int decoded = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string body;
    if (round % 2 == 0) {
      body.resize(random() % 60);
      for (char& c : body) c = static_cast<char>(random());
    } else {
      body = good;
      for (unsigned n = 1 + random() % 3; n > 0; --n)
        body[random() % body.size()] ^= static_cast<char>(1 << random() % 8);
    }
    try {
      decoded += DecodeBody(body).is_object();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kInternal);
    }
  }
  EXPECT_GT(decoded, 0);
}

}  // namespace
}  // namespace tilery
