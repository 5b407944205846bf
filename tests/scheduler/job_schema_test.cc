#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scheduler/job.h"
#include "scheduler/job_keys.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

std::filesystem::path SourceDir() {
  const char* folder = std::getenv("TILERY_SOURCE_DIR");
  return folder != nullptr ? folder : ".";
}

// With TILERY_UPDATE_SCHEMA set, this test writes the file instead.
TEST(JobSchemaTest, TheSchemaInConfigsIsThatOfTheTable) {
  const std::filesystem::path path = SourceDir() / "configs/job.schema.json";
  if (std::getenv("TILERY_UPDATE_SCHEMA") != nullptr) MakeFile(path, JobSchemaText());
  EXPECT_EQ(ContentOf(path), JobSchemaText())
      << path << " is out of date: run this test with TILERY_UPDATE_SCHEMA=1";
}

TEST(JobSchemaTest, TheSchemaNamesEveryKeyThatIsSupported) {
  const auto schema = nlohmann::json::parse(JobSchemaText());
  for (const JobKey& key : JobKeys()) {
    std::string pointer;
    std::string rest(key.key);
    for (size_t dot; (dot = rest.find('.')) != rest.npos; rest = rest.substr(dot + 1)) {
      pointer += "/properties/" + rest.substr(0, dot);
    }
    pointer += "/properties/" + rest;
    EXPECT_EQ(schema.contains(nlohmann::json::json_pointer(pointer)), !IsLater(key)) << key.key;
  }
}

TEST(ExampleJobsTest, EveryExampleIsASoundJob) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++examples;
    EXPECT_NO_THROW(LoadJob(entry.path(), {})) << entry.path();
  }
  EXPECT_GE(examples, 3);
}

}  // namespace
}  // namespace tilery
