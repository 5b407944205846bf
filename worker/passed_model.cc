#include "worker/passed_model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/error.h"
#include "io/file.h"

namespace tilery {
namespace {

[[noreturn]] void Fail(const std::string& what) { throw Error(Fault::kTransient, what); }

}  // namespace

PassedModel::PassedModel(const std::filesystem::path& file, const std::string& hash, int64_t bytes,
                         Broadcaster& broadcaster, const BroadcastSeat& seat)
    : file_(file) {
  if (seat.rank == 0) {
    Send(broadcaster, seat, bytes);
    return;
  }
  Receive(broadcaster, seat, bytes);
  at_ = "/proc/self/fd/" + std::to_string(memory_.get());
  if (HashFile(at_) != hash) Fail("what was passed on is not " + Printable(file.string()));
}

void PassedModel::Send(Broadcaster& broadcaster, const BroadcastSeat& seat, int64_t bytes) const {
  const UniqueFd in(open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (in.get() < 0) Fail(Errno("open " + Printable(file_.string()), errno));
  broadcaster.Run(seat, bytes, [&](int64_t offset, std::span<std::byte> piece) {
    for (size_t done = 0; done < piece.size();) {
      const ssize_t got = pread(in.get(), piece.data() + done, piece.size() - done,
                                offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) Fail(Errno("read " + Printable(file_.string()), errno));
      if (got == 0) Fail(Printable(file_.string()) + " is shorter than it was");
      done += static_cast<size_t>(got);
    }
  });
}

void PassedModel::Receive(Broadcaster& broadcaster, const BroadcastSeat& seat, int64_t bytes) {
  memory_ = UniqueFd(memfd_create("tilery-model", MFD_CLOEXEC));
  if (memory_.get() < 0) Fail(Errno("make memory for the model", errno));
  broadcaster.Run(seat, bytes, [&](int64_t offset, std::span<std::byte> piece) {
    for (size_t done = 0; done < piece.size();) {
      const ssize_t put = pwrite(memory_.get(), piece.data() + done, piece.size() - done,
                                 offset + static_cast<int64_t>(done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) Fail(Errno("keep the model in memory", errno));
      done += static_cast<size_t>(put);
    }
  });
}

void PassedModel::Release() {
  if (memory_.get() < 0) return;
  const UniqueFd file(open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  // The same number, so that at() stays as it is for whoever was told it.
  if (file.get() >= 0) dup3(file.get(), memory_.get(), O_CLOEXEC);
}

}  // namespace tilery
