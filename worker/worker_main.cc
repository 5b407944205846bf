#include "worker/worker_main.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "cluster/worker_start.h"
#include "io/error.h"
#include "worker/agent.h"
#include "worker/bench.h"
#include "worker/fault_points.h"
#include "worker/probe.h"

namespace tilery {
namespace {

constexpr int kUsageExit = 2;

// Activations and unit buffers of many MiB come and go with every batch. By default glibc maps and
// unmaps each, and the kernel clears every page anew, which took as long as the model itself. One
// heap that keeps what it has got takes a quarter of that; its lock is taken a few hundred times
// per batch.
void TuneMalloc() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

[[noreturn]] void Work(int control_fd, const Backend& backend) {
  // Whoever started us decides when we end, and tells us by `drain`: a terminal's ^C reaches us
  // too.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const WorkerStart start = ReadWorkerStart(control_fd);
  WatchParent(control_fd);
  NameFaultWorker(start.worker);
  AgentOptions options;
  options.engine = EnginesOf(backend);
  options.broadcaster = [&backend] { return backend.MakeBroadcaster(); };
  options.codec = [&backend] { return backend.MakeCodec(); };
  options.ready = [control_fd] { ReportReady(control_fd); };
  const AgentEnd end = RunAgent(start, options);
  // All threads of ours have ended and all is said. What Torch takes down on a return from main()
  // costs a tenth of a second, for which a short job would wait.
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(end));
}

int Main(int argc, char** argv, const Backend& backend) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "--version" && argc == 2) {
    std::puts("tilery-worker " TILERY_VERSION);
    return 0;
  }
  if (command == "--probe" && argc == 2) {
    std::cout << AnswerProbe({std::istreambuf_iterator<char>(std::cin), {}}, backend) << std::endl;
    return 0;
  }
  if (command == "--bench" && argc == 2) {
    std::cout << AnswerBench({std::istreambuf_iterator<char>(std::cin), {}}, backend) << std::endl;
    return 0;
  }
  if (command == "--control-fd" && argc == 3) {
    int fd = -1;
    const char* const end = argv[2] + std::strlen(argv[2]);
    const auto parsed = std::from_chars(argv[2], end, fd);
    if (parsed.ec == std::errc() && parsed.ptr == end && fd >= 0) Work(fd, backend);
  }
  if (argc == 1 && fcntl(kControlFd, F_GETFD) >= 0) Work(kControlFd, backend);
  std::fputs(
      "tilery-worker is started by tilery. usage: tilery-worker [--control-fd N | --probe "
      "| --bench | --version]\n",
      stderr);
  return kUsageExit;
}

}  // namespace

int WorkerMain(int argc, char** argv, const Backend& backend) {
  TuneMalloc();
  try {
    const int code = Main(argc, argv, backend);
    std::fflush(nullptr);
    return code;
  } catch (const Error& e) {
    std::fprintf(stderr, "tilery-worker: %s\n", e.what());
    return e.fault() == Fault::kUsage ? kUsageExit : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tilery-worker: internal fault: %s\n", e.what());
    return 1;
  }
}

}  // namespace tilery
