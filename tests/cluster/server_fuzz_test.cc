#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>

#include "tests/cluster/link_support.h"

namespace tilery {
namespace {

using namespace std::chrono_literals;

int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss << 10;
}

// Whether the other end closes. The limits here only end a test that fails: a machine may be busy
// with other things.
bool IsClosed(int fd) {
  char chunk[4096];
  for (int i = 0; i < 3000; ++i) {
    const ssize_t got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

class HostileServer : public testing::Test {
 protected:
  std::string token_ = NewToken();
  std::atomic<int> received_{0};
  ServerThread server_{token_, [this](ControlServer& server, PeerId peer, const Json& message) {
                         if (message.at("type") == "hello")
                           server.Send(peer, {{"type", "welcome"}, {"epoch", 1}});
                         if (message.at("type") == "sign") ++received_;
                       }};
  // A peer that was welcomed. While the server is busy with strangers it may be sent away at first.
  int Joined() {
    for (int i = 0; i < 3000; ++i) {
      const int fd = ConnectTo(server_.port());
      Send(fd, EncodeFrame({{"type", "hello"}, {"token", token_}, {"protocol", kProtocol}}));
      char chunk[1024];
      if (recv(fd, chunk, sizeof chunk, 0) > 0) return fd;
      close(fd);
      std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "the server welcomes nobody";
    return -1;
  }
  static void Send(int fd, const std::string& bytes) {
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void ExpectAlive() {
    const int before = received_;
    const int fd = Joined();
    Send(fd, EncodeFrame({{"type", "sign"}}));
    for (int i = 0; i < 15000 && received_ == before; ++i) std::this_thread::sleep_for(2ms);
    EXPECT_EQ(received_, before + 1);
    close(fd);
  }
};

TEST_F(HostileServer, DropsStrangersThatSendAnything) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int fd = ConnectTo(server_.port());
    ASSERT_GE(fd, 0);
    std::string bytes(1 + random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // A length that fits, so that the body itself is judged.
    if (round % 2 == 0) bytes = std::string("\x14\0\0\0", 4) + bytes;
    Send(fd, bytes);
    close(fd);
  }
  ExpectAlive();
}

TEST_F(HostileServer, ALargeGreetingIsCutOffUnread) {
  const int fd = ConnectTo(server_.port());
  Send(fd, std::string("\x01\x10\0\0", 4));  // 4097 bytes
  EXPECT_TRUE(IsClosed(fd));
  close(fd);
  ExpectAlive();
}

TEST_F(HostileServer, AClaimedLengthAllocatesNothing) {
  const int64_t before = PeakMemory();
  std::vector<int> fds;
  for (int i = 0; i < 32; ++i) {
    const int fd = Joined();
    Send(fd, std::string("\0\0\0\x04", 4) + "x");  // 64 MiB are to come, and never do
    fds.push_back(fd);
  }
  ExpectAlive();
  EXPECT_LT(PeakMemory() - before, 64 << 20);
  for (int fd : fds) close(fd);
}

TEST_F(HostileServer, AJoinedPeerThatSendsNonsenseIsCutOffAlone) {
  std::mt19937 random(6);
  const int good = Joined();
  for (int round = 0; round < 100; ++round) {
    const int fd = Joined();
    std::string frame = EncodeFrame({{"type", "outcome"}, {"x", {1, 2, 3}}});
    frame[4 + random() % (frame.size() - 4)] = static_cast<char>(0xc1);
    Send(fd, frame);
    close(fd);
  }
  Send(good, EncodeFrame({{"type", "sign"}}));
  for (int i = 0; i < 15000 && received_ == 0; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(received_, 1);
  close(good);
}

TEST_F(HostileServer, FramesCutAnywhereAreWaitedForOrDropped) {
  const std::string frame = EncodeFrame({{"type", "sign"}, {"text", std::string(40, 'a')}});
  for (size_t length = 0; length < frame.size(); ++length) {
    const int fd = Joined();
    Send(fd, frame.substr(0, length));
    close(fd);
  }
  EXPECT_EQ(received_, 0);
  ExpectAlive();
}

TEST_F(HostileServer, TooManyStrangersDoNotLockOutAWorkerForLong) {
  std::vector<int> fds;
  for (int i = 0; i < ControlServer::kMaxStrangers + 20; ++i)
    fds.push_back(ConnectTo(server_.port()));
  for (int fd : fds) close(fd);
  ExpectAlive();
}

}  // namespace
}  // namespace tilery
