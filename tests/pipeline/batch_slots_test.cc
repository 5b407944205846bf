#include "pipeline/batch_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/error.h"

namespace tilery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> Used(const BatchSlots& slots) {
  std::vector<int64_t> used;
  for (int64_t i = 0; i < slots.size(); ++i) used.push_back(slots[i]);
  return used;
}

TEST(BatchSlots, AreReadFromTheTextThatTheyGive) {
  EXPECT_THAT(Used(BatchSlots("all", 3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(BatchSlots("all", 3).unused(), IsEmpty());
  const BatchSlots some("0-2,4,6-7", 9);
  EXPECT_THAT(Used(some), ElementsAre(0, 1, 2, 4, 6, 7));
  EXPECT_THAT(some.unused(), ElementsAre(3, 5, 8));
  EXPECT_TRUE(some.Follows(0));
  EXPECT_FALSE(some.Follows(2));
  EXPECT_FALSE(some.Follows(3));
  EXPECT_TRUE(some.Follows(4));

  using Flags = std::vector<bool>;
  EXPECT_EQ(BatchSlots::Text(Flags{true}), "all");
  EXPECT_EQ(BatchSlots::Text(Flags{true, true, true}), "all");
  EXPECT_EQ(BatchSlots::Text(Flags{true, false}), "0");
  EXPECT_EQ(BatchSlots::Text(Flags{true, true, true, false, true, false, true, true, false}),
            "0-2,4,6-7");
  for (unsigned bits = 1; bits < 256; ++bits) {
    Flags flags;
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < 8; ++i) {
      flags.push_back((bits >> i & 1) != 0);
      if (flags.back()) wanted.push_back(i);
    }
    EXPECT_EQ(Used(BatchSlots(BatchSlots::Text(flags), 8)), wanted) << bits;
  }
}

TEST(BatchSlots, AnythingElseIsRefusedWithWhatIsWanted) {
  for (const char* text : {"", "none", "4", "0-4", "2-1", "1,1", "2,0", "0,", "0-", "-1", "0 1",
                           "0-1-2", "0,1x", "99999999999999999999", "all,1"}) {
    try {
      const BatchSlots slots(text, 4);
      ADD_FAILURE() << "'" << text << "' gives " << slots.size();
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kUsage);
      EXPECT_THAT(e.what(),
                  HasSubstr("a batch of 4: wanted is all, or ascending ranges from 0 to 3"));
    }
  }
}

TEST(BatchSlots, TheMostThatAgreeInAllBatchesAreUsed) {
  const auto used = [](const std::vector<std::vector<uint64_t>>& batches) {
    return BatchSlots::Text(SlotsThatAgree(batches));
  };
  EXPECT_EQ(used({{5}}), "all");
  EXPECT_EQ(used({{5, 5, 5, 5}, {7, 7, 7, 7}}), "all");
  EXPECT_EQ(used({{5, 5, 5, 6}, {7, 7, 7, 7}}), "0-2");
  EXPECT_EQ(used({{5, 5, 5, 5}, {8, 7, 7, 7}}), "1-3");
  EXPECT_EQ(used({{5, 6, 5, 5}, {7, 7, 7, 8}}), "0,2") << "each batch tells some apart";
  EXPECT_EQ(used({{1, 2, 3, 4}}), "0") << "the lowest of as many";
  EXPECT_EQ(used({{9, 9, 1, 1}}), "0-1");
}

}  // namespace
}  // namespace tilery
