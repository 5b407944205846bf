// A host that takes part in a run of another process: `tilery worker --join`, and every rank of
// mpirun. It finds the scheduler, offers its devices, starts and supervises the workers that it is
// told to, and ends when the run does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cluster/meeting.h"

namespace tilery {

struct JoinOptions {
  // One of them: where the scheduler is, or the work folder that says so (asked again and again,
  // since the run may not have begun yet).
  std::optional<Meeting> meeting;
  std::filesystem::path work;
  double wait_s = 60;  // for a scheduler that answers
  bool rank = false;   // of mpirun: one worker, unless the job says how many
  int ranks_here = 1;  // that share this host's CPUs
  int rank_here = 0;   // which of them this is
  int parent_fd = -1;  // when its other end closes, all ends; -1: there is none
};

// Until the run has ended. 0: it has, or this host was asked to leave (INT, TERM, USR1) and has; 2:
// it may not take part, or finds no run (told on standard error); 75: the scheduler was lost.
int Join(const JoinOptions& options);

// "HOST:PORT" (of an IPv6 address: "[ADDRESS]:PORT") with the token of TILERY_TOKEN or, beside it,
// of a file; else a work folder. Error(kUsage) with the ways out.
JoinOptions JoinOptionsFrom(const std::string& target, const std::string& token_file);

}  // namespace tilery
