#include "cluster/mpi.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cluster/meeting.h"
#include "cluster/mpi_plugin.h"
#include "cluster/process.h"
#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

constexpr int kNameBytes = 256;
constexpr size_t kWhyBytes = 1024;

std::optional<int> Number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::atoi(text);
}

std::string BootId() {
  try {
    return ReadSmallFile("/proc/sys/kernel/random/boot_id", 64);
  } catch (const Error&) {
    return "";
  }
}

const char* NameOf(const std::string& kind) { return kind == "openmpi" ? "Open MPI" : "MPICH"; }

// The library for this kind; its words if it can't be loaded.
void* Load(const std::string& kind, std::string* why) {
  const std::string name = "tilery-mpi-" + kind + ".so";
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  void* library = nullptr;
  for (const auto& file : {program / name, program.parent_path() / "lib" / name}) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    // Global: Open MPI loads parts of itself that look for it.
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) return library;
    *why = dlerror();
  }
  if (why->empty()) *why = name + " is not beside tilery; build with that MPI's headers installed";
  return nullptr;
}

}  // namespace

std::optional<MpiLaunch> FindMpiLaunch() {
  const std::array<std::array<const char*, 3>, 2> known = {{
      {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"mpich", "PMI_RANK", "PMI_SIZE"},
  }};
  for (const auto& [kind, rank, size] : known) {
    const auto r = Number(rank), s = Number(size);
    if (r && s && *s > 0 && *r >= 0 && *r < *s) return MpiLaunch{kind, *r, *s};
  }
  return std::nullopt;
}

struct MpiSession::Impl {
  template <typename Function>
  Function* Find(const char* name) {
    auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
    if (found == nullptr) throw Error(Fault::kInternal, std::string(name) + " is not in it");
    return found;
  }
  // Of a call that has put its words into `why`.
  void Check(int result, const char* what) {
    if (result == 0) return;
    throw Error(Fault::kInternal,
                std::string(NameOf(kind)) + ": " + what + ": " + Printable(why.data(), kWhyBytes));
  }

  std::string kind;
  void* library = nullptr;  // stays loaded: MPI leaves threads and handlers behind
  decltype(tilery_mpi_start)* start = nullptr;
  decltype(tilery_mpi_gather)* gather = nullptr;
  decltype(tilery_mpi_broadcast)* broadcast = nullptr;
  decltype(tilery_mpi_finish)* finish = nullptr;
  int rank = 0, size = 1;
  std::array<char, kWhyBytes> why{};
};

MpiSession::MpiSession(const MpiLaunch& launch) : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.kind = launch.kind;
  std::string why;
  m.library = Load(launch.kind, &why);
  if (m.library == nullptr) {
    throw Error(Fault::kUsage,
                std::string("this is a run under ") + NameOf(launch.kind) +
                    "'s mpirun, which this installation can't serve: " + Printable(why, 1000) +
                    ". The mpirun of another MPI may do, or no mpirun at all: "
                    "`tilery run` uses all GPUs of a host by itself");
  }
  m.start = m.Find<decltype(tilery_mpi_start)>("tilery_mpi_start");
  m.gather = m.Find<decltype(tilery_mpi_gather)>("tilery_mpi_gather");
  m.broadcast = m.Find<decltype(tilery_mpi_broadcast)>("tilery_mpi_broadcast");
  m.finish = m.Find<decltype(tilery_mpi_finish)>("tilery_mpi_finish");
  m.Check(m.start(&m.rank, &m.size, m.why.data(), m.why.size()), "MPI_Init");
  if (m.size != launch.size || m.rank != launch.rank) {
    throw Error(Fault::kUsage, "mpirun has started " + std::to_string(launch.size) +
                                   " ranks, but this one, number " + std::to_string(launch.rank) +
                                   ", sees itself as " + std::to_string(m.rank) + " of " +
                                   std::to_string(m.size) + ": mpirun and the library " +
                                   NameOf(launch.kind) +
                                   " do not belong together. Start tilery with the mpirun "
                                   "of the MPI that is installed");
  }
}

MpiSession::~MpiSession() = default;

int MpiSession::rank() const { return impl_->rank; }
int MpiSession::size() const { return impl_->size; }

std::vector<std::string> MpiSession::Hosts() {
  std::array<char, kNameBytes> mine{};
  // Hosts may bear one name, and what looks like hosts may be parts of one machine.
  (HostName() + "/" + BootId()).copy(mine.data(), mine.size() - 1);
  std::vector<char> all(static_cast<size_t>(impl_->size) * kNameBytes);
  impl_->Check(impl_->gather(mine.data(), all.data(), kNameBytes, impl_->why.data(), kWhyBytes),
               "names of the hosts");
  std::vector<std::string> hosts;
  for (int k = 0; k < impl_->size; ++k) hosts.emplace_back(all.data() + k * kNameBytes);
  return hosts;
}

std::string MpiSession::Broadcast(const std::string& text) {
  const auto broadcast = [this](char* data, int64_t bytes) {
    impl_->Check(
        impl_->broadcast(data, static_cast<int>(bytes), impl_->why.data(), impl_->why.size()),
        "broadcast");
  };
  auto size = static_cast<int64_t>(text.size());
  broadcast(reinterpret_cast<char*>(&size), sizeof size);
  std::string out = impl_->rank == 0 ? text : std::string(static_cast<size_t>(size), '\0');
  if (size > 0) broadcast(out.data(), size);
  return out;
}

void MpiSession::Finish() {
  impl_->Check(impl_->finish(impl_->why.data(), impl_->why.size()), "MPI_Finalize");
}

}  // namespace tilery
