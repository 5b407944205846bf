// Broadcasts over NCCL's interface, between threads.
#include "cluster/nccl.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "io/error.h"

namespace tilery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostBuffer final : public BroadcastBuffer {
 public:
  std::string card() const override { return "0000:17:00.0"; }
  std::byte* data() override { return memory_.data(); }
  size_t size() const override { return memory_.size(); }
  void* stream() override { return nullptr; }
  void Put(std::span<const std::byte> bytes) override {
    std::memcpy(memory_.data(), bytes.data(), bytes.size());
  }
  void Get(std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), memory_.data(), bytes.size());
  }
  bool Idle() override { return ++asked_ % 2 == 0; }  // not at once

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  int asked_ = 0;
};

std::unique_ptr<Broadcaster> Make(double patience = 20) {
  return MakeNcclBroadcaster(std::make_unique<HostBuffer>(), patience);
}

std::string ReasonOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kTransient);
    return e.what();
  }
  return "";
}

TEST(Nccl, AllGetTheBytesOfRankZero) {
  const auto root = Make();
  ASSERT_NE(root, nullptr);
  const std::string id = root->NewId();
  EXPECT_EQ(root->card(), "0000:17:00.0");
  EXPECT_EQ(id.size(), 256u);
  EXPECT_NE(id, root->NewId());
  constexpr int64_t kBytes = 3456;  // three whole pieces and one that is not
  std::vector<std::vector<std::byte>> got(3, std::vector<std::byte>(kBytes));
  for (int64_t k = 0; k < kBytes; ++k) got[0][k] = static_cast<std::byte>(k * k % 253);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      int64_t next = 0;
      Make()->Run({id, rank, 3}, kBytes, [&](int64_t offset, std::span<std::byte> piece) {
        EXPECT_EQ(offset, next);
        next += static_cast<int64_t>(piece.size());
        std::byte* const mine = got[rank].data() + offset;
        if (rank == 0) std::memcpy(piece.data(), mine, piece.size());
        if (rank != 0) std::memcpy(mine, piece.data(), piece.size());
      });
      EXPECT_EQ(next, kBytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[1], got[0]);
  EXPECT_EQ(got[2], got[0]);
}

TEST(Nccl, GivesUpIfAMemberDoesNotCome) {
  const auto alone = Make(0.1);
  const std::string id = alone->NewId();
  EXPECT_THAT(ReasonOf([&] {
                alone->Run({id, 0, 2}, 10, [](int64_t, std::span<std::byte>) {});
              }),
              AllOf(HasSubstr("join the group"), HasSubstr("nothing has moved for 0.1 s")));
}

TEST(Nccl, GivesUpIfTheSenderCannotGoOn) {
  const std::string id = Make()->NewId();
  std::string senders;
  std::thread root([&] {
    senders = ReasonOf([&] {
      Make()->Run({id, 0, 2}, 3000, [](int64_t offset, std::span<std::byte>) {
        if (offset > 0) throw Error(Fault::kTransient, "the disk is gone");
      });
    });
  });
  std::atomic<int> pieces = 0;
  const std::string receivers = ReasonOf([&] {
    Make(0.5)->Run({id, 1, 2}, 3000, [&](int64_t, std::span<std::byte>) { ++pieces; });
  });
  root.join();
  EXPECT_EQ(senders, "the disk is gone");
  EXPECT_THAT(receivers, AllOf(HasSubstr("broadcast"), HasSubstr("nothing has moved for 0.5 s")));
  EXPECT_EQ(pieces, 1);
}

TEST(Nccl, TellsItsOwnErrors) {
  const auto one = Make();
  const BroadcastPiece none = [](int64_t, std::span<std::byte>) {};
  const std::string id = one->NewId();
  EXPECT_THAT(ReasonOf([&] { one->Run({id, 2, 2}, 10, none); }), HasSubstr("invalid argument"));
  EXPECT_THAT(ReasonOf([&] { one->Run({"12", 0, 2}, 10, none); }), HasSubstr("another length"));
  EXPECT_THAT(ReasonOf([&] {
                one->Run({std::string(256, 'x'), 0, 2}, 10, none);
              }),
              HasSubstr("other characters"));
}

}  // namespace
}  // namespace tilery
