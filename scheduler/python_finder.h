// Finds what a compile needs besides this program: the scripts, and a Python whose Torch makes
// packages that our LibTorch loads.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tilery {

// The LibTorch that this program was built with, "2.11.0".
std::string BuiltWithTorch();

// The script of that name in $TILERY_TOOLS, else in ../share/tilery beside this program (where an
// archive has it), else in the tools/ that it was built from. Error(kUsage) naming the last two if
// it is in neither.
std::filesystem::path ToolScript(const std::string& name);

// The first of these that has that version of Torch (without importing it, which takes seconds):
//   $TILERY_PYTHON, and then no other
//   the Python that the Torch of $TILERY_TORCH belongs to
//   the Python of the build
//   python3 of the PATH, an active virtual environment's among them
// Error(kUsage) saying what each of them has instead, and the way out. `stop` as in RunBounds.
std::filesystem::path FindPython(const std::string& torch, const std::function<bool()>& stop = {});

}  // namespace tilery
