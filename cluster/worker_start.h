// What a worker is told when it starts, through a socket that it inherits as descriptor kControlFd.
//
// The socket stays open as long as the supervisor lives: its end is the worker's end. The worker
// reports there, once, that it is ready: that its model is loaded and it can take units. A worker
// that dies before that has failed to start.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cluster/client.h"
#include "cluster/numa.h"

namespace tilery {

inline constexpr int kControlFd = 3;

// Exit code of a worker that can't do this job, however often it is started: the model can't be
// loaded or contradicts its contract, say. Its last line on standard error tells why.
inline constexpr int kRefusedExit = 78;

// Exit code of a worker whose device has not the memory for this job, be it at the start or later.
// A fresh process may find more. Its last line on standard error tells how much it asked for.
inline constexpr int kNoMemoryExit = 79;

struct WorkerStart {
  Endpoint endpoint;
  std::string token;
  std::string worker;  // id, "w0"
  std::string device;  // "cpu", "cuda:0", "cuda:0:1"
  int threads = 1;     // CPU threads it may use
  int64_t epoch = 0;
  // For the supervisor:
  std::string log;      // where the worker's standard error goes; "" = nowhere else
  std::string program;  // the worker's executable
  // Beside and over the supervisor's own, and over WorkerEnvironment().
  std::vector<std::pair<std::string, std::string>> environment;
  // Which it binds itself to, so that the worker begins bound and has its memory near them; empty:
  // all. What can't be had is left, with a line in the worker's log.
  CpuSet cpus{};
};

// Name of its log below the run's folder of logs.
std::string WorkerLogName(const std::string& worker);

// What every worker process gets in its environment beside and over our own: with the folder
// TILERY_TORCH (or its lib/) at the front of LD_LIBRARY_PATH, so that it finds LibTorch there.
std::vector<std::pair<std::string, std::string>> WorkerEnvironment();

// One line of JSON. Reading blocks until it is there; Error(kInternal) if the socket ends before.
void WriteWorkerStart(int fd, const WorkerStart& start);
WorkerStart ReadWorkerStart(int fd);

// Of a worker. ReportReady may be called more than once. WatchParent starts a thread that ends this
// process at once (_exit, code 75) when the other end of `fd` closes.
void ReportReady(int fd);
void WatchParent(int fd);

}  // namespace tilery
