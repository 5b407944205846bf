// Passes bytes from one process to others, so that what all need is read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tilery {

// A place in a group of processes, each with a GPU of its own.
struct BroadcastSeat {
  std::string id;  // of the group, made by one of them: hexadecimal digits
  int rank = 0;    // 0 sends
  int size = 1;
};

// Called for one piece after the other: rank 0 fills it, the others take it.
using BroadcastPiece = std::function<void(int64_t offset, std::span<std::byte> piece)>;

// Used by one thread at a time. Every method throws Error(kTransient) with the reason if it can't
// be done here and now: then each takes what it needs from the file.
class Broadcaster {
 public:
  virtual ~Broadcaster() = default;
  // The card it is on, by its address on the bus: two members on one card, or on parts of one,
  // can't be in one group.
  virtual std::string card() const = 0;
  virtual std::string NewId() = 0;
  // All members call it with the same id, size and `bytes`. Gives up once nothing has moved for
  // kBroadcastPatience seconds, and what `piece` throws is passed on; the others then give up, too.
  virtual void Run(const BroadcastSeat& seat, int64_t bytes, const BroadcastPiece& piece) = 0;
};

inline constexpr double kBroadcastPatience = 5;

}  // namespace tilery
