#include "scheduler/python_finder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

class PythonFinderTest : public testing::Test {
 protected:
  PythonFinderTest() : path_(Variable("PATH")), tools_(Variable("TILERY_TOOLS")) {
    unsetenv("TILERY_PYTHON");
    unsetenv("TILERY_TORCH");
  }
  ~PythonFinderTest() override {
    unsetenv("TILERY_PYTHON");
    unsetenv("TILERY_TORCH");
    setenv("PATH", path_.c_str(), 1);
    unsetenv("TILERY_TOOLS");
    if (!tools_.empty()) setenv("TILERY_TOOLS", tools_.c_str(), 1);
  }
  // An interpreter that answers so.
  fs::path Python(const std::string& name, const std::string& script) {
    const fs::path file = folder_ / name;
    fs::create_directories(file.parent_path());
    MakeFile(file, "#!/bin/sh\n" + script + "\n");
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  std::string Refusal() {
    return ErrorOf(Fault::kUsage, [&] { FindPython("7.8.9"); });
  }

  static std::string Variable(const char* name) {
    const char* value = getenv(name);
    return value != nullptr ? value : "";
  }

  const std::string path_, tools_;
  TempFolder folder_;
};

TEST_F(PythonFinderTest, TheOneThatIsNamedIsTakenAndNoOther) {
  const fs::path named = Python("named", "echo 7.8.9");
  setenv("TILERY_PYTHON", named.c_str(), 1);
  EXPECT_EQ(FindPython("7.8.9"), named);
  Python("named", "echo 7.8.8");
  ExpectWords(Refusal(), {"TILERY_PYTHON", named, "has torch 7.8.8", "pip install torch==7.8.9"});
  Python("named", "echo");
  ExpectWords(Refusal(), {"has no torch"});
  Python("named", "exit 5");
  ExpectWords(Refusal(), {"fails with exit code 5"});
  setenv("TILERY_PYTHON", (folder_ / "none").c_str(), 1);
  ExpectWords(Refusal(), {"none", "No such file"});
  setenv("TILERY_PYTHON", "no-such-python", 1);
  ExpectWords(Refusal(), {"no-such-python is not on the PATH"});
}

TEST_F(PythonFinderTest, TheTorchThatIsNamedLeadsToItsPython) {
  const fs::path python = Python("env/bin/python3", "echo 7.8.9");
  for (const char* torch : {"torch", "torch/", "torch/lib", "torch/lib/"}) {
    setenv("TILERY_TORCH", (folder_ / "env/lib/python3.9/site-packages" / torch).c_str(), 1);
    EXPECT_EQ(FindPython("7.8.9"), python);
  }
}

TEST_F(PythonFinderTest, TheFirstOfThePathComesLastAndAllAreNamed) {
  const fs::path python = Python("bin/python3", "echo 7.8.9");
  setenv("PATH", (folder_ / "none:").string().append(folder_ / "bin").c_str(), 1);
  EXPECT_EQ(FindPython("7.8.9"), python);
  Python("bin/python3", "echo 1.0");
  setenv("TILERY_TORCH", Python("env/bin/python3", "echo 2.0").c_str(), 1);
  setenv("TILERY_TORCH", (folder_ / "env/lib/python3.9/dist-packages/torch").c_str(), 1);
  ExpectWords(Refusal(),
              {"env/bin/python3 has torch 2.0", "bin/python3 has torch 1.0", "TILERY_PYTHON"});
}

TEST_F(PythonFinderTest, TheScriptsComeWithTheProgram) {
  EXPECT_TRUE(fs::exists(ToolScript("compile_model.py")));
  unsetenv("TILERY_TOOLS");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { ToolScript("none.py"); }),
              {"none.py", "share/tilery", "tools"});
  setenv("TILERY_TOOLS", folder_.path().c_str(), 1);
  EXPECT_EQ(ToolScript("none.py"), folder_ / "none.py");
}

}  // namespace
}  // namespace tilery
