#include "cluster/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "io/error.h"
#include "tests/cluster/link_support.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MeetingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tilery-meeting-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Answers whoever looks for it, as the run of this epoch.
  static ServerThread::Received Welcome(int64_t epoch) {
    return [epoch](ControlServer& server, PeerId peer, const Json& message) {
      if (message.value("role", std::string()) != "look") return;
      server.Send(peer, {{"type", "welcome"}, {"epoch", epoch}});
      server.Close(peer);
    };
  }

  fs::path folder_;
  const std::string token_ = NewToken();
};

TEST_F(MeetingTest, TheFileIsForItsOwnerAloneAndKeepsAllItHolds) {
  EXPECT_EQ(ReadMeeting(folder_), std::nullopt);
  WriteMeeting(folder_, {{"10.0.0.1", "fe80::1"}, 4711, token_, 12});
  struct stat status {};
  ASSERT_EQ(stat(MeetingFile(folder_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto read = ReadMeeting(folder_);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->addresses, (std::vector<std::string>{"10.0.0.1", "fe80::1"}));
  EXPECT_EQ(read->port, 4711);
  EXPECT_EQ(read->token, token_);
  EXPECT_EQ(read->epoch, 12);
}

TEST_F(MeetingTest, AFileThatOthersMayReadOrThatIsDamagedIsRefusedWithoutItsToken) {
  WriteMeeting(folder_, {{"10.0.0.1"}, 1, token_, 1});
  chmod(MeetingFile(folder_).c_str(), 0644);
  try {
    ReadMeeting(folder_);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("others may read it"));
  }
  std::ofstream(MeetingFile(folder_)) << "{\"token\": \"" << token_ << "\", \"port\": }";
  chmod(MeetingFile(folder_).c_str(), 0600);
  try {
    ReadMeeting(folder_);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("damaged"));
    EXPECT_EQ(std::string(error.what()).find(token_), std::string::npos);
  }
}

TEST_F(MeetingTest, TheSchedulerIsFoundAtTheAddressWhereItAnswers) {
  ServerThread server(token_, Welcome(5));
  // One that takes the connection and says nothing.
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(silent, 4), 0);
  const Meeting meeting{{"127.0.0.2", "127.0.0.1"}, server.port(), token_, 5};
  const auto begin = std::chrono::steady_clock::now();
  const auto found = FindScheduler(meeting, 20);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->host, "127.0.0.1");
  EXPECT_EQ(found->port, server.port());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
      << "an address that is silent holds nobody up";
  EXPECT_EQ(FindScheduler({{"127.0.0.2"}, server.port(), token_, 5}, 0.3), std::nullopt);
  close(silent);
}

TEST_F(MeetingTest, WhoAnswersOtherwiseIsNotTheScheduler) {
  ServerThread server(token_, Welcome(5));
  EXPECT_EQ(FindScheduler({{"127.0.0.1"}, server.port(), NewToken(), 5}, 0.5), std::nullopt);
  EXPECT_EQ(FindScheduler({{"127.0.0.1"}, server.port(), token_, 6}, 0.5), std::nullopt)
      << "another run of the folder";
  EXPECT_TRUE(FindScheduler({{"127.0.0.1"}, server.port(), token_, 0}, 10).has_value());
  const uint16_t port = server.port();
  server.Stop();
  EXPECT_EQ(FindScheduler({{"127.0.0.1"}, port, token_, 5}, 0.3), std::nullopt);
  EXPECT_EQ(FindScheduler({{"not an address"}, port, token_, 5}, 0.3), std::nullopt);
}

TEST_F(MeetingTest, AServerListensOnAllOfItsAddressesAtOnePort) {
  std::atomic<int> greeted{0};
  ControlServer::Handlers handlers{[&](PeerId, const Json&) { ++greeted; },
                                   [](PeerId, const Json&) {}, [](PeerId, const std::string&) {}};
  ControlServer server({"127.0.0.1", "127.0.0.2"}, token_, handlers);
  std::thread look([&] {
    for (const char* address : {"127.0.0.1", "127.0.0.2"})
      FindScheduler({{address}, server.port(), token_, 0}, 0.3);
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (greeted < 2 && std::chrono::steady_clock::now() < until) server.Poll(0.01);
  look.join();
  EXPECT_EQ(greeted, 2);
  EXPECT_THROW(ControlServer({"127.0.0.1", "192.0.2.1"}, token_, handlers), Error)
      << "not an address of this host";
}

TEST_F(MeetingTest, AnInterfaceOrAddressThatIsNotThereIsRefusedWithThoseThatAre) {
  EXPECT_EQ(AddressesOfHost("127.0.0.1"), std::vector<std::string>{"127.0.0.1"});
  EXPECT_THAT(AddressesOfHost("lo"), ::testing::Contains("127.0.0.1"));
  try {
    AddressesOfHost("ib7");
    FAIL() << "there is such an interface";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("'ib7'"));
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1 (lo)"));
  }
  EXPECT_EQ(AddressesOfName("127.0.0.3"), std::vector<std::string>{"127.0.0.3"});
  EXPECT_THROW(AddressesOfName("no..such..host"), Error);
}

}  // namespace
}  // namespace tilery
