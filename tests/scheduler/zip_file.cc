#include "tests/scheduler/zip_file.h"

#include <gtest/gtest.h>
#include <zip.h>

namespace tilery {

void MakeZip(const std::filesystem::path& path, const std::map<std::string, std::string>& entries) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, text] : entries) {
    zip_source_t* source = zip_source_buffer(archive, text.data(), text.size(), 0);
    ASSERT_GE(zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

}  // namespace tilery
