// The contract of forward loops, for the backend that `MakeForward` below is linked for.
#include "worker/forward_loop.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/io/expect_error.h"
#include "tests/pipeline/engine_support.h"
#include "tests/worker/forward_on.h"

namespace tilery {
namespace {

EngineOptions OptionsOf(const std::string& model) {
  const testing::Item item = testing::MakePicture({1, 32, 48}, 3, DType::kU8, DType::kU8, 32, 8);
  return testing::OptionsFor(item, model, 4, 1);
}

class ForwardLoopTest : public testing::ForwardFixture {};

TEST_F(ForwardLoopTest, EachBatchIsTimedOnce) {
  const auto model = testing::MakeForward(OptionsOf("conv"));
  const auto loop = model->MakeLoop();
  EXPECT_FALSE(loop->how().empty());
  EXPECT_TRUE(loop->Sync().empty());
  for (const size_t batches : {1, 7, 3}) {  // fewer and more than places in a ring
    for (size_t k = 0; k < batches; ++k) loop->Run();
    const std::vector<double> seconds = loop->Sync();
    EXPECT_EQ(seconds.size(), batches);
    EXPECT_GT(*std::min_element(seconds.begin(), seconds.end()), 0);
  }
  for (int k = 0; k < 5; ++k) loop->Run();  // and goes with batches under way
}

TEST_F(ForwardLoopTest, AModelMayOverwriteItsInput) {
  // Its own results, doubled again and again, would soon be no numbers any more.
  const auto model = testing::MakeForward(OptionsOf("in_place"));
  const auto loop = model->MakeLoop();
  for (int k = 0; k < 300; ++k) loop->Run();
  EXPECT_EQ(loop->Sync().size(), 300u);
}

TEST_F(ForwardLoopTest, AModelThatIsNotThereIsNamed) {
  EngineOptions options = OptionsOf("conv");
  options.model = "/gone.pt";
  const std::string said =
      ErrorOf(Fault::kModel, [&] { testing::MakeForward(options)->MakeLoop(); });
  EXPECT_NE(said.find("/gone.pt"), std::string::npos) << said;
}

}  // namespace
}  // namespace tilery
