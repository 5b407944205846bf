// Zip archives, as model files are.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace tilery {

// An archive of these entries: name and content.
void MakeZip(const std::filesystem::path& path, const std::map<std::string, std::string>& entries);

}  // namespace tilery
