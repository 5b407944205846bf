// A model's bytes from a file or from another worker.
#include "worker/model_source.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <deque>
#include <thread>

#include "io/error.h"
#include "io/file.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

// What rank 0 sends, the others get.
struct Wire {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::vector<std::byte>> sent;
};

class WireBroadcaster final : public Broadcaster {
 public:
  explicit WireBroadcaster(Wire& wire) : wire_(wire) {}
  std::string card() const override { return "0000:17:00.0"; }
  std::string NewId() override { return "1d"; }
  void Run(const BroadcastSeat& seat, int64_t bytes, const BroadcastPiece& piece) override {
    if (seat.id != "1d" || seat.size != 2) throw Error(Fault::kTransient, "no such group");
    constexpr int64_t kPiece = 1000;
    for (int64_t offset = 0; offset < bytes; offset += kPiece) {
      std::vector<std::byte> part(static_cast<size_t>(std::min(kPiece, bytes - offset)));
      if (seat.rank == 0) piece(offset, part);
      std::unique_lock lock(wire_.mutex);
      if (seat.rank == 0) {
        wire_.sent.push_back(part);
        wire_.changed.notify_all();
        continue;
      }
      wire_.changed.wait(lock, [&] { return !wire_.sent.empty(); });
      part = std::exchange(wire_.sent.front(), {});
      wire_.sent.pop_front();
      lock.unlock();
      piece(offset, part);
    }
  }

 private:
  Wire& wire_;
};

class ModelSourceTest : public testing::Test {
 protected:
  ModelSourceTest() {
    for (int k = 0; k < 2500; ++k) bytes_ += static_cast<char>(k * k % 251);
    MakeFile(file_, bytes_);
    context_.model = file_.string();
    context_.model_hash = HashFile(file_);
    context_.model_bytes = static_cast<int64_t>(bytes_.size());
    context_.pass_model = true;
  }

  // With the answers that will come, in order.
  void Get(const std::vector<Json>& answers) {
    std::deque<Json> left(answers.begin(), answers.end());
    ModelSource* source = nullptr;
    source_.emplace(
        [&](const Json& message) {
          said_.push_back(message);
          if (!left.empty()) source->Answer(left.front());
          if (!left.empty()) left.pop_front();
        },
        make_, worker_);
    source = &*source_;
    source->Get(context_);
  }

  TempFolder folder_;
  const std::filesystem::path file_ = folder_ / "model.pt";
  std::string bytes_;
  WorkerContext context_;
  Wire wire_;
  std::function<std::unique_ptr<Broadcaster>()> make_ = [this] {
    return std::make_unique<WireBroadcaster>(wire_);
  };
  const std::string worker_ = "w0";
  std::vector<Json> said_;
  std::optional<ModelSource> source_;
};

TEST_F(ModelSourceTest, IsTheFileIfNobodyPassesItOn) {
  context_.pass_model = false;
  Get({});
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(source_->words(), (Json{{"from", "file"}, {"bytes", 2500}}));
  context_.pass_model = true;
  Get({{{"type", "model"}, {"id", ""}}});
  EXPECT_EQ(said_,
            (std::vector<Json>{{{"type", "model"}, {"can", true}, {"card", "0000:17:00.0"}}}));
  EXPECT_EQ(source_->words(), (Json{{"from", "file"}, {"bytes", 2500}}));
  EXPECT_EQ(context_.model_at, "");
}

TEST_F(ModelSourceTest, OneReadsAndTheOtherGetsTheSameBytes) {
  WorkerContext first = context_;
  std::vector<Json> asked;
  std::thread root([&] {
    ModelSource* self = nullptr;
    ModelSource source(
        [&](const Json& message) {
          asked.push_back(message);
          if (message.at("type") == "model") {
            self->Answer({{"type", "model"}, {"root", true}});
          } else {
            self->Answer({{"type", "model"}, {"id", message.at("id")}, {"rank", 0}, {"size", 2}});
          }
        },
        make_, worker_);
    self = &source;
    source.Get(first);
    EXPECT_EQ(source.words().at("from"), "file");
    EXPECT_EQ(source.words().at("members"), 2);
  });
  context_.model = (folder_ / "not here.pt").string();  // as on a host that is late to see it
  Get({{{"type", "model"}, {"id", "1d"}, {"rank", 1}, {"size", 2}}});
  root.join();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1], (Json{{"type", "model_id"}, {"id", "1d"}}));
  EXPECT_EQ(first.model_at, "") << "its own file";
  EXPECT_EQ(source_->words().at("from"), "broadcast");
  EXPECT_EQ(source_->words().at("members"), 2);
  ASSERT_NE(context_.model_at, "");
  EXPECT_EQ(ContentOf(context_.model_at), bytes_);
  source_->Loaded();  // its file can't be opened: the memory is kept
  EXPECT_EQ(ContentOf(context_.model_at), bytes_);
}

TEST_F(ModelSourceTest, MemoryIsGivenBackForTheFileOnceTheModelIsLoaded) {
  {
    const std::lock_guard lock(wire_.mutex);
    for (size_t at = 0; at < bytes_.size(); at += 1000) {
      const auto part =
          std::as_bytes(std::span(bytes_).subspan(at, std::min<size_t>(1000, bytes_.size() - at)));
      wire_.sent.emplace_back(part.begin(), part.end());
    }
  }
  Get({{{"type", "model"}, {"id", "1d"}, {"rank", 1}, {"size", 2}}});
  EXPECT_THAT(std::filesystem::read_symlink(context_.model_at).string(), HasSubstr("memfd:"));
  source_->Loaded();
  EXPECT_EQ(std::filesystem::read_symlink(context_.model_at), std::filesystem::canonical(file_));
  EXPECT_EQ(ContentOf(context_.model_at), bytes_);
}

TEST_F(ModelSourceTest, OtherBytesThanThePlannedOnesAreNotTaken) {
  {
    const std::lock_guard lock(wire_.mutex);
    for (const size_t size : {1000, 1000, 500}) wire_.sent.emplace_back(size, std::byte{7});
  }
  Get({{{"type", "model"}, {"id", "1d"}, {"rank", 1}, {"size", 2}}});
  EXPECT_EQ(context_.model_at, "");
  EXPECT_EQ(source_->words().at("from"), "file");
  EXPECT_THAT(source_->words().at("not_passed_on").get<std::string>(),
              HasSubstr("what was passed on is not " + file_.string()));
}

TEST_F(ModelSourceTest, AFileThatBecameShorterIsNotPassedOn) {
  std::filesystem::resize_file(file_, 1200);
  Get({{{"type", "model"}, {"id", "1d"}, {"rank", 0}, {"size", 2}}});
  EXPECT_EQ(source_->words().at("from"), "file");
  EXPECT_THAT(source_->words().at("not_passed_on").get<std::string>(),
              HasSubstr("is shorter than"));
}

TEST_F(ModelSourceTest, TheSchedulerIsToldIfThereIsNoWay) {
  make_ = nullptr;
  Get({});
  EXPECT_EQ(said_, (std::vector<Json>{{{"type", "model"}, {"can", false}, {"card", ""}}}));
  said_.clear();
  make_ = []() -> std::unique_ptr<Broadcaster> { throw Error(Fault::kTransient, "no memory"); };
  Get({});
  EXPECT_EQ(said_, (std::vector<Json>{{{"type", "model"}, {"can", false}, {"card", ""}}}));
  EXPECT_EQ(source_->words().at("not_passed_on"), "no memory");
  make_ = []() -> std::unique_ptr<Broadcaster> { throw std::bad_alloc(); };
  Get({});
  EXPECT_EQ(source_->words().at("from"), "file");
}

TEST_F(ModelSourceTest, NobodyWaitsForASchedulerThatIsGone) {
  source_.emplace([this](const Json&) { source_->GiveUp(); }, make_, worker_);
  const auto began = std::chrono::steady_clock::now();
  source_->Get(context_);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(source_->words().at("from"), "file");
}

}  // namespace
}  // namespace tilery
