#include "scheduler/numerics.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

TEST(CpuBatchTest, IsTheLargestPowerOfTwoUpToEightThatFits) {
  EXPECT_EQ(CpuBatch({1, 64, 64}, {}, 1 << 30), 8);
  // 32 channels of f32 for 96^3 voxels in and out: 226 MB a tile, and a quarter of 1 GiB.
  EXPECT_EQ(CpuBatch({96, 96, 96}, {}, 1 << 30), 1);
  EXPECT_EQ(CpuBatch({96, 96, 96}, {}, int64_t{2} << 30), 2);
  EXPECT_EQ(CpuBatch({512, 512, 512}, {}, 1 << 20), 1);
}

class NumericsTest : public testing::Test {
 protected:
  NumericsTest() {
    resolved_.plan.params.resize(1);
    resolved_.plan.params[0].tiling.tile = {1, 64, 64};
  }
  NumericsRecord Decide(const std::string& torch = "2.11") {
    Numerics device;
    device.batch = 0;
    device.device_kind = "cpu/x";
    device.torch = torch;
    return DecideNumerics(job_, resolved_, "model", device, folder_.path());
  }
  NumericsRecord Freeze(const std::string& torch = "2.11") {
    const NumericsRecord record = Decide(torch);
    KeepNumerics(record, folder_.path());
    return record;
  }
  std::string Given(const std::string& from, const std::string& to) {
    std::string text = ContentOf(folder_ / "numerics.json");
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    MakeFile(folder_ / "given.json", text.replace(at, from.size(), to));
    job_.execution.numerics_file = (folder_ / "given.json").string();
    return ErrorOf(Fault::kUsage, [&] { Freeze(); });
  }

  Job job_ = JobOf();
  Resolved resolved_;
  TempFolder folder_;
};

TEST_F(NumericsTest, TheSameJobKeepsItsRecord) {
  const NumericsRecord first = Freeze();
  EXPECT_EQ(first.numerics.batch, 8);
  const std::string kept = ContentOf(folder_ / "numerics.json");
  const NumericsRecord second = Freeze();
  EXPECT_EQ(second.Key(), first.Key());
  EXPECT_TRUE(second.deviations.empty());
  EXPECT_EQ(ContentOf(folder_ / "numerics.json"), kept);
}

TEST_F(NumericsTest, DecidingLeavesTheWorkFolderAsItWas) {
  Decide();
  EXPECT_EQ(EntriesOf(folder_.path()), 0);
  Freeze();
  const std::string kept = ContentOf(folder_ / "numerics.json");
  EXPECT_FALSE(Decide("2.12").known);
  EXPECT_EQ(ContentOf(folder_ / "numerics.json"), kept);
}

TEST_F(NumericsTest, AnotherTorchIsADeviationAndRefusedIfStrict) {
  const NumericsRecord first = Freeze();
  job_.execution.strict = true;
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Freeze("2.12"); }), {"strict", "torch", "2.11", "2.12"});
  job_.execution.strict = false;
  const NumericsRecord other = Freeze("2.12");
  EXPECT_NE(other.Key(), first.Key());
  ASSERT_EQ(other.deviations.size(), 1u);
  ExpectWords(other.deviations[0], {"torch", "2.11", "2.12"});
}

TEST_F(NumericsTest, AnotherBatchIsTheJobsOwnDoingAndAnotherKey) {
  job_.execution.strict = true;
  const NumericsRecord first = Freeze();
  job_.execution.batch = 2;
  const NumericsRecord other = Freeze();
  EXPECT_NE(other.Key(), first.Key());
  EXPECT_TRUE(other.deviations.empty());
}

TEST_F(NumericsTest, ThePrecisionFollowsTheDeviceAndWhatIsWritten) {
  std::vector<ItemParams> params(2);
  const auto of = [&](DType dtype, bool labels, bool gpu) {
    params[1].transfer.out_dtype = dtype;
    params[1].transfer.labels = labels;
    return PrecisionOf(job_, params, gpu);
  };
  EXPECT_EQ(of(DType::kU8, false, true), "fp16");
  EXPECT_EQ(of(DType::kF16, false, true), "fp16");
  EXPECT_EQ(of(DType::kU16, false, true), "tf32");
  EXPECT_EQ(of(DType::kI16, false, true), "tf32");
  EXPECT_EQ(of(DType::kF32, false, true), "tf32");
  EXPECT_EQ(of(DType::kU16, true, true), "fp16");
  EXPECT_EQ(of(DType::kU8, false, false), "fp32");
  job_.model.precision = "bf16";
  EXPECT_EQ(of(DType::kU16, false, true), "bf16");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { PrecisionOf(job_, params, false); }),
              {"model.precision", "bf16", "GPU", "fp32"});
}

TEST_F(NumericsTest, AGivenRecordIsFollowedToTheLetterOrRefused) {
  job_.execution.batch = 2;
  const NumericsRecord first = Freeze();
  ExpectWords(Given("\"batch\": 2", "\"batch\": 0"), {"given.json", "batch", "0", "65536"});
  ExpectWords(Given("\"slots\": \"all\"", "\"slots\": \"1-2\""),
              {"given.json", "slots '1-2' of a batch of 2", "0 to 1"});
  ExpectWords(Given("nchw", "nhwc"), {"given.json", "layout", "nhwc", "nchw"});
  ExpectWords(Given("fp32", "fp16"), {"given.json", "precision", "fp16", "fp32"});
  const auto number = [](int n) { return "\"numerics_number\": " + std::to_string(n); };
  ExpectWords(Given(number(kNumericsNumber), number(kNumericsNumber - 1)), {"numerics_number"});
  ExpectWords(Given("2.11", "2.10"), {"given.json", "Torch 2.10", "Torch 2.11"});
  ExpectWords(Given("{", "[{"), {"given.json", "not a numerics record"});
  job_.execution.batch.reset();
  job_.execution.numerics_file = (folder_ / "numerics.json").string();
  EXPECT_EQ(Freeze().Key(), first.Key());
}

}  // namespace
}  // namespace tilery
