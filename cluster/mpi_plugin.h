// What tilery-mpi-*.so offers: plain C, since it is compiled by the wrapper of the MPI at hand. All
// return 0, or an error of MPI with its words in `why`.
#pragma once

#include <stddef.h>

extern "C" {

int tilery_mpi_start(int* rank, int* size, char* why, size_t room);
// `mine` and each of `all` have `bytes` bytes; `all` has room for every rank's.
int tilery_mpi_gather(const char* mine, char* all, int bytes, char* why, size_t room);
int tilery_mpi_broadcast(char* data, int bytes, char* why, size_t room);  // of rank 0
int tilery_mpi_finish(char* why, size_t room);
}
