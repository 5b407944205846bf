#include "cluster/nccl.h"

#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(1);
constexpr std::string_view kHex = "0123456789abcdef";

[[noreturn]] void Fail(const std::string& what, const std::string& why) {
  throw Error(Fault::kTransient, "NCCL: " + what + ": " + why);
}

struct Library {
  Library() : handle(dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)) {
    whole = Find(get_id, "ncclGetUniqueId") && Find(init, "ncclCommInitRankConfig") &&
            Find(state, "ncclCommGetAsyncError") && Find(broadcast, "ncclBroadcast") &&
            Find(finalize, "ncclCommFinalize") && Find(destroy, "ncclCommDestroy") &&
            Find(abort, "ncclCommAbort") && Find(words, "ncclGetErrorString");
  }
  template <typename Function>
  bool Find(Function*& function, const char* name) {
    if (handle != nullptr) function = reinterpret_cast<Function*>(dlsym(handle, name));
    return function != nullptr;
  }

  void* const handle;  // stays loaded: its threads may outlive us
  bool whole = false;
  decltype(ncclGetUniqueId)* get_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommGetAsyncError)* state = nullptr;
  decltype(ncclBroadcast)* broadcast = nullptr;
  decltype(ncclCommFinalize)* finalize = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclGetErrorString)* words = nullptr;
};

const Library& Nccl() {
  static const Library library;
  return library;
}

ncclUniqueId IdOf(const std::string& digits) {
  ncclUniqueId id{};
  if (digits.size() != 2 * sizeof id.internal) Fail("the group's id", "it has another length");
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    const size_t high = kHex.find(digits[2 * i]), low = kHex.find(digits[2 * i + 1]);
    if (high == kHex.npos || low == kHex.npos) Fail("the group's id", "it has other characters");
    id.internal[i] = static_cast<char>(high * 16 + low);
  }
  return id;
}

// A communicator whose calls return at once (ncclConfig_t::blocking = 0), so that a member that
// does not come keeps nobody for ever.
class Communicator {
 public:
  Communicator(const BroadcastSeat& seat, double patience) : patience_(patience) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Begun(Nccl().init(&comm_, seat.size, IdOf(seat.id), seat.rank, &config), "join the group");
    try {
      Wait("join the group", [] { return true; });
    } catch (...) {
      Abort();
      throw;
    }
  }
  ~Communicator() { Abort(); }
  Communicator(const Communicator&) = delete;

  // From rank 0's memory to that of all.
  void Broadcast(BroadcastBuffer& buffer, size_t bytes) {
    const char* const what = "broadcast";
    Begun(Nccl().broadcast(buffer.data(), buffer.data(), bytes, ncclUint8, 0, comm_,
                           static_cast<cudaStream_t>(buffer.stream())),
          what);
    Wait(what, [&] { return buffer.Idle(); });
  }

  // Until then others may still need what this member holds.
  void Finish() {
    Begun(Nccl().finalize(comm_), "leave the group");
    Wait("leave the group", [] { return true; });
    Nccl().destroy(std::exchange(comm_, nullptr));
  }

 private:
  void Begun(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess && result != ncclInProgress) Fail(what, Nccl().words(result));
  }

  template <typename Also>
  void Wait(const char* what, const Also& also) {
    const auto until = Clock::now() + std::chrono::duration<double>(patience_);
    for (;;) {
      ncclResult_t now = ncclInProgress;
      Begun(Nccl().state(comm_, &now), what);
      Begun(now, what);
      if (now == ncclSuccess && also()) return;
      if (Clock::now() > until) Fail(what, "nothing has moved for " + Seconds());
      std::this_thread::sleep_for(kLook);
    }
  }

  std::string Seconds() const {
    std::string text = std::to_string(patience_);
    text.resize(text.find('.') + 2);
    return text + " s";
  }

  void Abort() {
    if (comm_ != nullptr) Nccl().abort(std::exchange(comm_, nullptr));
  }

  const double patience_;
  ncclComm_t comm_ = nullptr;
};

class NcclBroadcaster final : public Broadcaster {
 public:
  NcclBroadcaster(std::unique_ptr<BroadcastBuffer> buffer, double patience)
      : buffer_(std::move(buffer)), patience_(patience) {}

  std::string card() const override { return buffer_->card(); }

  std::string NewId() override {
    ncclUniqueId id;
    if (const ncclResult_t result = Nccl().get_id(&id); result != ncclSuccess)
      Fail("make a group", Nccl().words(result));
    std::string digits;
    for (const char byte : id.internal) {
      digits += kHex[static_cast<unsigned char>(byte) >> 4];
      digits += kHex[static_cast<unsigned char>(byte) & 15];
    }
    return digits;
  }

  void Run(const BroadcastSeat& seat, int64_t bytes, const BroadcastPiece& piece) override {
    Communicator communicator(seat, patience_);
    const auto most = static_cast<size_t>(std::min(bytes, static_cast<int64_t>(buffer_->size())));
    const std::unique_ptr<std::byte[]> host(new std::byte[most]);
    for (int64_t offset = 0; offset < bytes;) {
      const auto now = std::min(most, static_cast<size_t>(bytes - offset));
      const std::span<std::byte> part(host.get(), now);
      if (seat.rank == 0) {
        piece(offset, part);
        buffer_->Put(part);
      }
      communicator.Broadcast(*buffer_, now);
      if (seat.rank != 0) {
        buffer_->Get(part);
        piece(offset, part);
      }
      offset += static_cast<int64_t>(now);
    }
    try {
      communicator.Finish();
    } catch (const Error&) {
      // All bytes are there; rank 0 has nothing to lose.
    }
  }

 private:
  const std::unique_ptr<BroadcastBuffer> buffer_;
  const double patience_;
};

}  // namespace

std::unique_ptr<Broadcaster> MakeNcclBroadcaster(std::unique_ptr<BroadcastBuffer> buffer,
                                                 double patience) {
  if (!Nccl().whole) return nullptr;
  return std::make_unique<NcclBroadcaster>(std::move(buffer), patience);
}

}  // namespace tilery
