#include "scheduler/package_cache.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "io/file.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Time = fs::file_time_type;

constexpr std::chrono::hours kInUse{1};
constexpr std::chrono::hours kHalfWritten{24};
constexpr size_t kLongestStem = 80;  // of the 255 bytes of a file name

}  // namespace

std::optional<fs::path> PackageFolder() {
  const auto cache = CacheFolder();
  if (!cache) return std::nullopt;
  std::error_code failed;
  fs::create_directories(*cache / "packages", failed);
  if (failed) return std::nullopt;
  return *cache / "packages";
}

std::string PackageName(const fs::path& model, const std::string& model_hash,
                        const std::string& torch, const std::string& libraries_hash) {
  std::string stem = model.stem().string().substr(0, kLongestStem);
  for (char& c : stem) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '-' && c != '_') c = '-';
  }
  const std::string key = HashText(model_hash + "\n" + torch + "\n" + libraries_hash);
  return stem + "-" + key.substr(0, 16);
}

void TouchPackage(const fs::path& package) {
  std::error_code ignored;
  fs::last_write_time(package, Time::clock::now(), ignored);
}

int PrunePackages(const fs::path& folder, int64_t limit, const std::set<fs::path>& keep) {
  struct Package {
    Time used;
    int64_t size;
    fs::path path;
    bool operator<(const Package& other) const {
      return used != other.used ? used < other.used : path < other.path;
    }
  };
  std::vector<Package> packages;
  int64_t bytes = 0;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    std::error_code gone;  // others prune, too
    if (entry.path().extension() == ".partial" &&
        entry.last_write_time(gone) < Time::clock::now() - kHalfWritten && !gone) {
      fs::remove_all(entry.path(), gone);
      continue;
    }
    if (entry.path().extension() != ".pt2" || !entry.is_regular_file(gone)) continue;
    const auto size = static_cast<int64_t>(entry.file_size(gone));
    const Time used = entry.last_write_time(gone);
    if (gone) continue;
    packages.push_back({used, size, entry.path()});
    bytes += size;
  }
  std::sort(packages.begin(), packages.end());
  int removed = 0;
  for (const Package& package : packages) {
    if (bytes <= limit) break;
    if (keep.contains(package.path) || package.used > Time::clock::now() - kInUse) continue;
    std::error_code error;
    if (!fs::remove(package.path, error)) continue;
    bytes -= package.size;
    ++removed;
  }
  return removed;
}

}  // namespace tilery
