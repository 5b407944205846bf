#include "scheduler/contract.h"

#include <gtest/gtest.h>

#include "scheduler/model_file.h"
#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

TEST(ContractTest, ReadsAllKeysOfAModelsOwnFile) {
  const Contract contract = ContractFromJson(
      R"({"scale": 2.0, "dims": 2, "channels": {"in": 3, "out": 3, "order": "rgb"}, "range": [0, 1],
          "mean": [0.5], "std": [0.25, 0.5, 1], "radius": 7, "multiple": 4, "name": "anything",
          "tiling": {"tile": 256, "overlap": 16}})",
      "file");
  EXPECT_EQ(contract.scale, std::vector<Rational>{Rational::Of(2, 1)});
  EXPECT_EQ(contract.dims, 2);
  EXPECT_EQ(contract.channels_in, 3);
  EXPECT_EQ(contract.range, (std::array<double, 2>{0, 1}));
  EXPECT_EQ(contract.std, (std::vector<double>{0.25, 0.5, 1}));
  EXPECT_EQ(contract.radius, std::vector<int64_t>{7});
  EXPECT_EQ(contract.tile, std::vector<int64_t>{256});
  EXPECT_EQ(contract.overlap, std::vector<int64_t>{16});
  EXPECT_EQ(contract.source.at("tiling.tile"), "file");
  EXPECT_EQ(contract.source.count("name"), 0u);
}

TEST(ContractTest, AScaleMayBeAFractionOrOnePerAxis) {
  EXPECT_EQ(ContractFromJson(R"({"scale": "1/8"})", "file").scale,
            std::vector<Rational>{Rational::Of(1, 8)});
  EXPECT_EQ(ContractFromJson(R"({"scale": [4, 1, "1/2"]})", "file").scale,
            (std::vector<Rational>{Rational::Of(4, 1), Rational{}, Rational::Of(1, 2)}));
}

TEST(ContractTest, WhatIsWrongIsNamed) {
  const auto mistake = [](const std::string& json) {
    return ErrorOf(Fault::kUsage, [&] { ContractFromJson(json, "here"); });
  };
  ExpectWords(mistake(R"({"skale": 2})"), {"here", "skale", "model.scale"});
  ExpectWords(mistake(R"({"channels": {"in": 0}})"), {"channels.in", "'0'"});
  ExpectWords(mistake(R"({"channels": {"order": "grb"}})"), {"grb", "rgb, bgr"});
  ExpectWords(mistake(R"({"transfer": "log"})"), {"transfer", "not supported yet"});
  ExpectWords(mistake(R"({"multiple": 1000000000000})"),
              {"model.multiple", "1000000000000", "limit"});
  ExpectWords(mistake("[1]"), {"no JSON object"});
  ExpectWords(mistake("{"), {"no JSON object"});
}

TEST(ContractTest, TheJobBeatsTheFileWhichBeatsTheProbe) {
  Contract job, file, probed;
  job.radius = std::vector<int64_t>{5};
  file.radius = std::vector<int64_t>{9};
  file.scale = std::vector<Rational>{Rational::Of(2, 1)};
  probed.scale = std::vector<Rational>{Rational::Of(4, 1)};
  probed.channels_in = 3;
  const Contract merged = MergeContracts(job, file, probed);
  EXPECT_EQ(merged.radius, std::vector<int64_t>{5});
  EXPECT_EQ(merged.scale, std::vector<Rational>{Rational::Of(2, 1)});
  EXPECT_EQ(merged.source.at("radius"), "job");
  EXPECT_EQ(merged.source.at("scale"), "file");
  EXPECT_EQ(merged.source.at("channels.in"), "probed");
  EXPECT_EQ(merged.source.at("range"), "assumed");
  EXPECT_EQ(merged.range, (std::array<double, 2>{0, 1}));
  EXPECT_FALSE(merged.channels_out.has_value());
}

}  // namespace
}  // namespace tilery
