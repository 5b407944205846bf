// Compiled once per implementation of MPI, by its own wrapper, into tilery-mpi-<kind>.so.
#include "cluster/mpi_plugin.h"

#include <mpi.h>
#include <time.h>

#include <cstdio>

namespace {

int Told(int error, char* why, size_t room) {
  if (error == MPI_SUCCESS || room == 0) return error;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) text[0] = 0;
  std::snprintf(why, room, "%s", text);
  return error;
}

// MPI_Wait would spin.
int WaitAsleep(MPI_Request* request) {
  const timespec pause{0, 2'000'000};
  for (;;) {
    int done = 0;
    const int error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS || done != 0) return error;
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

extern "C" {

int tilery_mpi_start(int* rank, int* size, char* why, size_t room) {
  int provided = 0;
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (error != MPI_SUCCESS) return Told(error, why, room);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, size);
  return Told(error, why, room);
}

int tilery_mpi_gather(const char* mine, char* all, int bytes, char* why, size_t room) {
  MPI_Request request;
  const int error =
      MPI_Iallgather(mine, bytes, MPI_CHAR, all, bytes, MPI_CHAR, MPI_COMM_WORLD, &request);
  return Told(error != MPI_SUCCESS ? error : WaitAsleep(&request), why, room);
}

int tilery_mpi_broadcast(char* data, int bytes, char* why, size_t room) {
  MPI_Request request;
  const int error = MPI_Ibcast(data, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
  return Told(error != MPI_SUCCESS ? error : WaitAsleep(&request), why, room);
}

int tilery_mpi_finish(char* why, size_t room) {
  MPI_Request request;
  int error = MPI_Ibarrier(MPI_COMM_WORLD, &request);
  if (error == MPI_SUCCESS) error = WaitAsleep(&request);
  if (error == MPI_SUCCESS) error = MPI_Finalize();
  return Told(error, why, room);
}
}
