#include "pipeline/operator_libraries.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "io/error.h"
#include "pipeline/engine.h"
#include "pipeline/model.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

fs::path Library(const std::string& name) {
  return fs::path(std::getenv("TILERY_TEST_OPERATORS")) / name;
}

fs::path ModelFile() { return fs::path(std::getenv("TILERY_TEST_MODELS")) / "times.pt"; }

std::string Refusal(const fs::path& library) {
  return ErrorOf(Fault::kModel, [&] { LoadOperatorLibrary(library, 7); });
}

void ExpectIn(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

// In this order: a process can't forget an operator.
TEST(OperatorLibraries, AModelNeedsItsLibraryAndIsTheSameWithIt) {
  const std::string before = ErrorOf(Fault::kModel, [] { LoadTorchScript(ModelFile()); });
  for (const char* words : {"times.pt", "operator tilery_test::times,", "model.libraries"}) {
    ExpectIn(before, words);
  }
  const ModelProbe probe = ProbeModel(ModelFile(), 2, 3, {1, 8, 8});
  EXPECT_FALSE(probe.runs);
  ExpectIn(probe.error, "model.libraries");

  LoadOperatorLibrary(Library("times_3.so"), 7);
  LoadOperatorLibrary(Library("times_3.so"), 7);
  std::vector<float> input = {0.5F, -1, 0, 2};
  const auto model = LoadTorchScript(ModelFile());
  const ModelOutput output = model->Run(input.data(), {1, 1, 2, 2});
  EXPECT_EQ(std::vector<float>(output.data, output.data + 4), (std::vector<float>{1.5F, -3, 0, 6}));

  // Torch knows an operator of that name already.
  EXPECT_EXIT(LoadOperatorLibrary(Library("times_2.so"), 7), testing::ExitedWithCode(7),
              "times_2.so can't be loaded: Only a single TORCH_LIBRARY .*tilery_test");
}

TEST(OperatorLibraries, WhatIsNoLibraryIsRefusedInTheLoadersWords) {
  const TempFolder folder;
  MakeFile(folder / "text.so", std::string(5000, 'x'));
  const std::string text = Refusal(folder / "text.so");
  for (const char* words : {"model.libraries", "text.so", "invalid ELF header", "Torch 2."}) {
    ExpectIn(text, words);
  }
  ExpectIn(Refusal(folder / "none.so"), "No such file");
}

}  // namespace
}  // namespace tilery
