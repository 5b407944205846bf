#include "scheduler/model_file.h"

#include <gtest/gtest.h>

#include <map>

#include "io/file.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/zip_file.h"

namespace tilery {
namespace {

class ModelFileTest : public testing::Test {
 protected:
  ModelFile Read(const std::map<std::string, std::string>& entries) {
    MakeZip(folder_ / "m.pt", entries);
    return ReadModelFile(folder_ / "m.pt");
  }
  std::string Mistake(const std::map<std::string, std::string>& entries) {
    return ErrorOf(Fault::kUsage, [&] { Read(entries); });
  }

  TempFolder folder_;
};

TEST_F(ModelFileTest, ATorchScriptFileTellsItsContract) {
  const ModelFile model =
      Read({{"net/data.pkl", "x"},
            {"net/code/__torch__.py", "y"},
            {"net/extra/tilery.json", R"({"scale": 2, "channels": {"in": 3}})"}});
  EXPECT_EQ(model.kind, "torchscript");
  EXPECT_EQ(model.hash, HashFile(folder_ / "m.pt"));
  EXPECT_EQ(model.contract.channels_in, 3);
  EXPECT_EQ(model.contract.source.at("scale"), "file");
}

TEST_F(ModelFileTest, AFileWithoutAContractHasAnEmptyOne) {
  const ModelFile model = Read({{"net/data.pkl", "x"}, {"net/code/__torch__.py", "y"}});
  EXPECT_TRUE(model.contract.source.empty());
}

TEST_F(ModelFileTest, AWrongContractNamesFileKeyAndValue) {
  const std::string message = Mistake({{"net/data.pkl", "x"},
                                       {"net/code/__torch__.py", "y"},
                                       {"net/extra/tilery.json", R"({"dims": 5})"}});
  ExpectWords(message, {"m.pt", "tilery.json", "dims", "5", "2, 3"});
}

TEST_F(ModelFileTest, WhatIsNoModelIsRefusedByName) {
  MakeFile(folder_ / "a.png", "no zip at all");
  MakeFile(folder_ / "empty.pt", "");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_ / "gone.pt"); }),
              {"gone.pt", "no such file"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_ / "a.png"); }),
              {"a.png", "no model"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_ / "empty.pt"); }), {"empty.pt"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_.path()); }), {"must be a file"});
  ExpectWords(Mistake({{"net/data.pkl", "x"}, {"net/version", "3"}}), {"state dict", "torch.jit"});
  ExpectWords(Mistake({{"readme.txt", "x"}}), {"no TorchScript model"});
  ExpectWords(Mistake({{"net/data/aotinductor/model/x.so", "x"}}),
              {"m.pt", "does not say what it was compiled for", "tilery compile"});
}

TEST_F(ModelFileTest, ACutFileIsRefused) {
  Read({{"net/data.pkl", std::string(5000, 'x')}, {"net/code/a.py", "y"}});
  std::filesystem::resize_file(folder_ / "m.pt", std::filesystem::file_size(folder_ / "m.pt") / 2);
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_ / "m.pt"); }),
              {"m.pt", "cut off"});
}

TEST_F(ModelFileTest, ALibraryIsPartOfWhatDecidesBytes) {
  const std::string path = folder_ / "m.pt";
  MakeZip(path, {{"net/data.pkl", "x"}, {"net/code/__torch__.py", "y"}});
  MakeFile(folder_ / "a.so", "a");
  MakeFile(folder_ / "b.so", "b");
  Job job;
  job.model.path = path;
  const auto key = [&](const std::vector<std::string>& libraries) {
    job.model.libraries.clear();
    for (const std::string& name : libraries) job.model.libraries.push_back(folder_ / name);
    return ReadModelOf(job).Key();
  };
  EXPECT_EQ(key({}), HashFile(path));
  const std::string both = key({"a.so", "b.so"});
  EXPECT_NE(both, key({}));
  EXPECT_NE(both, key({"a.so"}));
  EXPECT_NE(both, key({"b.so", "a.so"})) << "the later one may replace what the earlier one says";
  std::filesystem::copy_file(folder_ / "a.so", folder_ / "c.so");
  EXPECT_EQ(both, key({"c.so", "b.so"})) << "where a library lies decides nothing";
  MakeFile(folder_ / "a.so", "A");
  EXPECT_NE(both, key({"a.so", "b.so"}));
  ExpectWords(ErrorOf(Fault::kUsage,
                      [&] {
                        key({"a.so", "none.so"});
                      }),
              {"model.libraries", "none.so", "No such file"});
}

TEST_F(ModelFileTest, WhatAPackageWasCompiledForCountsMoreThanItsContract) {
  const auto package = [&](const std::string& facts) {
    return Read({{"p/data/aotinductor/model/x.so", "x"},
                 {"p/extra/tilery.json", R"({"dims": 2, "scale": 4, "radius": 3,
                     "tiling": {"tile": 64, "overlap": 8}})"},
                 {"p/extra/tilery_package.json", facts}});
  };
  const std::string facts = R"({"gpu": "X", "capability": "9.0", "torch": "2.11.0", "batch": 2,
      "tile": [16, 32], "precision": "fp32", "layout": "nhwc", "channels_in": 3,
      "channels_out": 5, "scale": 2})";
  const ModelFile model = package(facts);
  EXPECT_EQ(model.kind, "package");
  EXPECT_TRUE(model.compiled_only());
  const Contract& c = model.contract;
  EXPECT_EQ(c.tile, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(c.overlap, std::nullopt) << "it was suggested for another tile";
  EXPECT_EQ(c.channels_out, 5);
  EXPECT_EQ(c.scale->at(0).ToString(), "2");
  EXPECT_EQ(c.radius, std::vector<int64_t>{3});
  EXPECT_EQ(c.order, std::nullopt) << "nothing is assumed yet";
  EXPECT_EQ(FactsOfPackage(folder_ / "m.pt").batch, 2);
  ExpectWords(ErrorOf(Fault::kUsage, [&] { package(R"({"batch": 2})"); }), {"does not say"});
}

TEST_F(ModelFileTest, AnExportedProgramCanBeCompiledAndAPackageIsAlready) {
  MakeZip(folder_ / "m.pt2", {{"m/models/model.json", "x"},
                              {"m/extra/tilery.json", R"({"dims": 3, "tiling": {"tile": 64}})"}});
  const ModelFile model = ReadModelFile(folder_ / "m.pt2", ModelUse::kCompile);
  EXPECT_EQ(model.kind, "exported");
  EXPECT_TRUE(model.compiled_only());
  EXPECT_EQ(ReadModelFile(folder_ / "m.pt2").contract.dims, 3);
  EXPECT_EQ(model.contract.dims, 3);
  MakeZip(folder_ / "p.pt2", {{"p/data/aotinductor/model/x.so", "x"}});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ReadModelFile(folder_ / "p.pt2", ModelUse::kCompile); }),
              {"p.pt2", "compiled already"});
}

TEST_F(ModelFileTest, APackageTellsItsFactsIfItIsWhole) {
  const std::map<std::string, std::string> entries = {
      {"p/data/aotinductor/model/x.so", "x"}, {"p/extra/tilery_package.json", R"({"batch": 2})"}};
  MakeZip(folder_ / "p.pt2", entries);
  EXPECT_EQ(ReadPackageFacts(folder_ / "p.pt2"), R"({"batch": 2})");
  const std::string whole = ContentOf(folder_ / "p.pt2");
  MakeFile(folder_ / "cut.pt2", whole.substr(0, whole.size() - 5));
  EXPECT_EQ(ReadPackageFacts(folder_ / "cut.pt2"), std::nullopt);
  EXPECT_EQ(ReadPackageFacts(folder_ / "none.pt2"), std::nullopt);
  MakeZip(folder_ / "foreign.pt2", {{"p/data/aotinductor/model/x.so", "x"}});
  EXPECT_EQ(ReadPackageFacts(folder_ / "foreign.pt2"), std::nullopt);
}

}  // namespace
}  // namespace tilery
