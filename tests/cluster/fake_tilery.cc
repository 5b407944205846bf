// Stands for `tilery supervise`.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "cluster/launcher.h"

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], "supervise") != 0) return 2;
  try {
    return tilery::RunSupervisor(tilery::kControlFd);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake_tilery: %s\n", error.what());
    return 1;
  }
}
