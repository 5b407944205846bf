// tilery-worker: runs units on CPUs. Started by `tilery`, never by hand.
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return tilery::WorkerMain(argc, argv, *tilery::MakeCpuBackend());
}
