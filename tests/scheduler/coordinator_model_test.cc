// Workers that pass the model on, as the coordinator brings them together.
#include <deque>

#include "cluster/client.h"
#include "tests/scheduler/coordinator_fixture.h"

namespace tilery {
namespace {

// A worker that says what the test wants and keeps what it hears of the model.
class Member {
 public:
  Member(uint16_t port, const std::string& token, int64_t epoch, const std::string& id)
      : client_({"127.0.0.1", port},
                {{"token", token},
                 {"worker", id},
                 {"host", "host of " + id},
                 {"pid", 1},
                 {"device", "cuda:0"},
                 {"epoch", epoch}},
                10, {[this](const Json& message) { Hear(message); }, [](const std::string&) {}}) {}
  void Say(const Json& message) { client_.Send(message); }
  void Ask() { Say({{"type", "model"}, {"can", true}, {"card", "0000:17:00.0"}}); }
  std::deque<Json> heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void Hear(const Json& message) {
    if (message.at("type") != "model") return;
    const std::lock_guard lock(mutex_);
    heard_.push_back(message);
  }
  mutable std::mutex mutex_;
  std::deque<Json> heard_;
  ControlClient client_;
};

class CoordinatorModel : public CoordinatorFixture {
 protected:
  void Begin() {
    Plan({{2}});
    options_.model_pass = {.on = true};
    options_.first_host_worker = 2;
    Start();
  }
  std::unique_ptr<Member> Join(const std::string& id) {
    return std::make_unique<Member>(coordinator_->port(), options_.token, ledger_->epoch(), id);
  }
  void End() {
    coordinator_->Drain("the test has seen enough");
    EXPECT_EQ(Result().status, "interrupted");
  }
};

TEST_F(CoordinatorModel, GivesEachItsSeat) {
  Begin();
  const auto a = Join("w0"), b = Join("w1");
  a->Ask();
  b->Ask();
  Await([&] { return a->heard().size() + b->heard().size() == 1; });
  const bool first = !a->heard().empty();
  Member& root = first ? *a : *b;
  Member& other = first ? *b : *a;
  EXPECT_EQ(root.heard()[0], (Json{{"type", "model"}, {"root", true}}));
  root.Say({{"type", "model_id"}, {"id", "1d"}});
  Await([&] { return root.heard().size() == 2 && other.heard().size() == 1; });
  EXPECT_EQ(root.heard()[1], (Json{{"type", "model"}, {"id", "1d"}, {"rank", 0}, {"size", 2}}));
  EXPECT_EQ(other.heard()[0], (Json{{"type", "model"}, {"id", "1d"}, {"rank", 1}, {"size", 2}}));
  End();
}

TEST_F(CoordinatorModel, IfTheRootSaysFarewellTheOtherReads) {
  Begin();
  const auto a = Join("w0"), b = Join("w1");
  a->Ask();
  b->Ask();
  Await([&] { return a->heard().size() + b->heard().size() == 1; });
  const bool first = !a->heard().empty();
  (first ? *a : *b).Say({{"type", "bye"}});
  Member& other = first ? *b : *a;
  Await([&] { return other.heard().size() == 1; });
  EXPECT_EQ(other.heard()[0], (Json{{"type", "model"}, {"id", ""}}));
  End();
}

}  // namespace
}  // namespace tilery
