// `mpirun -np N tilery run JOB`.
//
//   mpirun ── rank 0: scheduler ─────────────── child: takes part as a host ── supervise ── worker
//          └─ rank k: waits for the run's end ── child: takes part as a host ── supervise ── worker
//
// The child that starts workers begins before MPI_Init, and no child of ours sees MPI's part of the
// environment. So nothing that happens to a worker is an event of MPI's, and a rank that loses its
// child starts another. MPI carries where the scheduler is, and lets the ranks leave together: rank
// 0 last, with the run's code, the others with 0.
#pragma once

#include <functional>

#include "cluster/mpi.h"
#include "scheduler/pipeline_commands.h"

namespace tilery {

// `body` is called on rank 0 alone, and runs jobs over all ranks, one after the other, by what it
// is given. Its result becomes the code, its errors are told and become the code, too.
int RunUnderMpi(const MpiLaunch& launch, const std::function<int(const RunStage&)>& body);

// Body of the child, `tilery join-rank`: what it needs comes as a line on kControlFd.
int JoinAsRank();

}  // namespace tilery
