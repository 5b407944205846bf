// NCCL's library for tests: groups of threads of one process, and "GPU memory" that is the host's.
// Like the real one with blocking = 0, calls return at once and the state tells when they are done.
#include <nccl.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Group {
  int joined = 0, size = 0, left = 0;
  std::vector<std::string> sent;
};

std::mutex mutex;  // guards all below
std::map<std::string, Group> groups;
int last_id = 0;

}  // namespace

struct ncclComm {
  Group* group;
  int rank;
  size_t calls = 0;
  void* waiting_for = nullptr;  // memory that the next broadcast is copied to
  size_t bytes = 0;
  bool leaving = false;
};

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0xab, sizeof *id);
  std::memcpy(id->internal, &++last_id, sizeof last_id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank >= size) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  Group& group = groups[std::string(id.internal, sizeof id.internal)];
  group.size = size;
  ++group.joined;
  *comm = new ncclComm{&group, rank};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(mutex);
  Group& group = *comm->group;
  bool done = group.joined == group.size && (!comm->leaving || group.left == group.size);
  if (comm->waiting_for != nullptr) {
    done = group.sent.size() > comm->calls;
    if (done) {
      std::memcpy(comm->waiting_for, group.sent[comm->calls].data(), comm->bytes);
      comm->waiting_for = nullptr;
      ++comm->calls;
    }
  }
  *state = done ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t bytes, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t) {
  if (type != ncclUint8 || root != 0) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  if (comm->rank == 0) {
    comm->group->sent.emplace_back(static_cast<const char*>(from), bytes);
    ++comm->calls;
    return ncclSuccess;
  }
  comm->waiting_for = to;
  comm->bytes = bytes;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  comm->leaving = true;
  ++comm->group->left;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidArgument ? "invalid argument" : "another error";
}

}  // extern "C"
