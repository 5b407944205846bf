// MPI, as far as a run needs it: who the ranks are, one text from rank 0 to all, and leaving
// together. No rank works on data, and none touches a GPU.
//
// Open MPI and MPICH have different binary interfaces, so neither is linked: each has a small
// shared library of ours beside the program (tilery-mpi-openmpi.so, tilery-mpi-mpich.so;
// mpi_plugin.cc), of which the one that fits the mpirun that started us is loaded. Waiting ranks
// sleep; MPI's own waiting would take a core each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tilery {

// What the environment says of the mpirun that started this process.
struct MpiLaunch {
  std::string kind;  // "openmpi" or "mpich" (also for what shares its interface, as Intel's)
  int rank = 0, size = 1;
};
std::optional<MpiLaunch> FindMpiLaunch();

// Not thread-safe: for the thread that made it, and one object per process. All ranks call the same
// members in the same order.
class MpiSession {
 public:
  // MPI_Init. Error(kUsage) in words if there is no library for this kind, or if MPI sees other
  // ranks than mpirun has started.
  explicit MpiSession(const MpiLaunch& launch);
  ~MpiSession();  // without Finish nothing is finalized: mpirun then ends all ranks
  MpiSession(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  // Of each rank, in rank order: a text that is the same for ranks of one host alone.
  std::vector<std::string> Hosts();
  std::string Broadcast(const std::string& text);  // rank 0's text
  void Finish();                                   // waits for all ranks, then MPI_Finalize

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
