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
  // Both ask, and one of them is told to make the group's id.
  void AskBoth() {
    a_ = Join("w0");
    b_ = Join("w1");
    a_->Ask();
    b_->Ask();
    Await([this] { return a_->heard().size() + b_->heard().size() == 1; });
    const bool first = !a_->heard().empty();
    root_ = (first ? a_ : b_).get();
    other_ = (first ? b_ : a_).get();
    EXPECT_EQ(root_->heard()[0], (Json{{"type", "model"}, {"root", true}}));
  }
  void End() {
    coordinator_->Drain("the test has seen enough");
    EXPECT_EQ(Result().status, "interrupted");
  }

  std::unique_ptr<Member> a_, b_;
  Member *root_ = nullptr, *other_ = nullptr;
};

TEST_F(CoordinatorModel, GivesEachItsSeat) {
  Begin();
  AskBoth();
  root_->Say({{"type", "model_id"}, {"id", "1d"}});
  Await([&] { return root_->heard().size() == 2 && other_->heard().size() == 1; });
  EXPECT_EQ(root_->heard()[1], (Json{{"type", "model"}, {"id", "1d"}, {"rank", 0}, {"size", 2}}));
  EXPECT_EQ(other_->heard()[0], (Json{{"type", "model"}, {"id", "1d"}, {"rank", 1}, {"size", 2}}));
  End();
}

TEST_F(CoordinatorModel, IfTheRootSaysFarewellTheOtherReads) {
  Begin();
  AskBoth();
  root_->Say({{"type", "bye"}});
  Await([&] { return other_->heard().size() == 1; });
  EXPECT_EQ(other_->heard()[0], (Json{{"type", "model"}, {"id", ""}}));
  End();
}

}  // namespace
}  // namespace tilery
