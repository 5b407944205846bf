#include "tests/scheduler/coord_support.h"

#include <unistd.h>

#include <filesystem>
#include <span>
#include <thread>

#include "io/brick.h"
#include "io/error.h"
#include "scheduler/attempt_name.h"

namespace tilery {
namespace {

constexpr int64_t kTile = 4;

}  // namespace

Plan MakeTestPlan(const std::vector<ItemSpec>& specs, const std::string& folder) {
  Plan plan;
  ItemParams params;
  params.tiling.tile = {1, kTile, kTile};
  params.transfer.passes.resize(1);
  params.output.format = "raw";
  plan.params.push_back(params);
  for (size_t i = 0; i < specs.size(); ++i) {
    Item item;
    item.input = folder + "/in" + std::to_string(i) + ".raw";
    item.output = folder + "/out" + std::to_string(i) + ".raw";
    item.header.format = "raw";
    item.header.shape = {1, kTile, kTile * specs[i].tiles};
    item.sizing.tiles = 1;
    item.key = HashText("item " + std::to_string(i));
    item.tiles = specs[i].tiles;
    item.infer_units = static_cast<int32_t>(specs[i].tiles);
    item.staged = specs[i].staged;
    item.scratch_bytes = specs[i].scratch_bytes;
    if (item.scratch_bytes == 0 && item.infer_units > 1) item.scratch_bytes = 100 * specs[i].tiles;
    item.first_unit = plan.units;
    plan.units += item.units();
    plan.tiles += item.tiles;
    plan.items.push_back(item);
  }
  return plan;
}

WorkerContext TestContext(const Plan& plan, const std::string& work) {
  WorkerContext context;
  context.work = work;
  context.scratch = work + "/scratch";
  context.numerics_key = "numerics";
  context.params = plan.params;
  std::filesystem::create_directories(context.scratch);
  return context;
}

RunOptions TestOptions(const std::string& work) {
  RunOptions options;
  options.token = NewToken();
  options.work = work;
  options.scratch = work + "/scratch";
  options.lease_s = 20;
  options.scratch_limit = 1 << 30;
  return options;
}

Outcome DoUnit(const UnitWork& work, const WorkerContext& context, int64_t unit, int64_t attempt,
               int64_t epoch) {
  Done done;
  const std::string name = AttemptName(context.work, unit, epoch, attempt);
  const auto write = [&](const std::filesystem::path& path) {
    OutputFile file(path, name);
    file.Write(std::as_bytes(std::span(work.item_key)));
    return file.Publish(Durability::kRename);
  };
  if (work.kind == UnitKind::kStage) {
    done.file = work.stage_file;
    done.published = write(std::filesystem::path(context.scratch) / work.stage_file);
  } else if (work.kind == UnitKind::kInfer && !work.whole) {
    done.tiles = 1;
    done.file =
        work.brick_key + "." + std::to_string(epoch) + "." + std::to_string(attempt) + ".brick";
    BrickWriter brick(std::filesystem::path(context.scratch) / done.file, name, work.brick_key);
    const Box box = Box::Whole({1, kTile, kTile});
    const std::vector<std::byte> samples(static_cast<size_t>(box.voxels()));
    brick.Add({"interior", DType::kU8, 1, box},
              DenseView(samples.data(), DType::kU8, 1, box.shape(), Layout::kInterleaved));
    done.published = brick.Finish();
  } else {
    for (const Brick& brick : work.bricks) {
      try {
        VerifyBrick(std::filesystem::path(context.scratch) / brick.file, brick.key);
      } catch (const Error& error) {
        return LostBrick{brick.key, error.what(),
                         unit - static_cast<int64_t>(work.bricks.size()) + brick.block};
      }
    }
    done.tiles = work.whole ? 1 : 0;
    done.file = work.output;
    done.published = write(work.output);
  }
  return done;
}

FakeWorker::FakeWorker(uint16_t port, const std::string& token, int64_t epoch, Options options)
    : token_(token), epoch_(epoch), options_(std::move(options)) {
  // The client's thread may have something to say before its pointer is stored.
  const std::unique_lock first(mutex_);
  client_ = std::make_unique<ControlClient>(
      Endpoint{"127.0.0.1", port},
      Json{{"token", token_},
           {"worker", options_.id},
           {"host", "here"},
           {"pid", options_.pid},
           {"device", "fake"},
           {"epoch", epoch_}},
      options_.give_up_s,
      ControlClient::Handlers{[this](const Json& message) { Receive(message); },
                              [this](const std::string&) {
                                const std::lock_guard lock(mutex_);
                                ended_ = true;
                              }});
  heart_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    int64_t beats = 0;
    while (!ended_ && !gone_) {
      wake_.wait_for(lock, std::chrono::milliseconds(50));
      if (!options_.renews || !client_ || gone_) continue;
      client_->Send({{"type", "renew"},
                     {"sent_us", ControlClient::NowUs()},
                     {"phase", "run"},
                     {"batches", options_.progresses ? ++beats : 0}});
    }
  });
}

FakeWorker::~FakeWorker() {
  Vanish();
  heart_.join();
}

void FakeWorker::Vanish() {
  std::unique_ptr<ControlClient> client;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    client = std::move(client_);
  }
  wake_.notify_all();
  client.reset();
}

bool FakeWorker::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

int64_t FakeWorker::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::vector<int64_t> FakeWorker::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

std::vector<FakeWorker::Lease> FakeWorker::waiting() const {
  const std::lock_guard lock(mutex_);
  std::vector<Lease> leases;
  for (const auto& [number, lease] : waiting_) leases.push_back(lease);
  return leases;
}

void FakeWorker::Receive(const Json& message) {
  const std::string type = message.at("type").get<std::string>();
  if (type == "leases") ++answers_;
  const std::lock_guard lock(mutex_);
  if (gone_ || !client_) return;
  if (type == "welcome") {
    context_ = ContextFromJson(message.at("context"));
    Want();
  } else if (type == "leases") {
    for (const Json& json : message.at("leases")) {
      const Lease lease{json.at("lease"), json.at("unit"), json.at("attempt"),
                        UnitWorkFromJson(json.at("work"))};
      if (lease.work.bricks_missing > 0) {
        waiting_[lease.lease] = lease;
      } else {
        Do(lease);
      }
    }
    if (!message.at("leases").empty()) Want();
  } else if (type == "bricks") {
    TakeBricks(message);
  } else if (type == "drop") {
    for (const Json& lease : message.at("leases")) {
      dropped_.push_back(lease.get<int64_t>());
      if (waiting_.erase(dropped_.back()) == 0) --held_;
    }
    if (message.value("early", false)) waiting_.clear();
    Want();
  } else if ((type == "drain" || type == "end") && options_.leaves) {
    client_->Send({{"type", "profile"}, {"busy_s", 0.5}, {"alive_s", 2.0}});
    client_->Send({{"type", "bye"}});
    ended_ = true;
    wake_.notify_all();
  }
}

void FakeWorker::Do(const Lease& lease) {
  ++held_;
  std::optional<Outcome> outcome;
  if (options_.work) {
    outcome = options_.work(lease);
  } else {
    outcome = DoUnit(lease.work, context_, lease.unit, lease.attempt, epoch_);
  }
  if (!outcome) return;
  --held_;
  if (std::holds_alternative<Done>(*outcome)) ++done_;
  client_->Send({{"type", "outcome"},
                 {"lease", lease.lease},
                 {"unit", lease.unit},
                 {"attempt", lease.attempt},
                 {"outcome", ToJson(*outcome)}});
}

void FakeWorker::TakeBricks(const Json& message) {
  const auto found = waiting_.find(message.at("lease").get<int64_t>());
  if (found == waiting_.end()) return;
  UnitWork& work = found->second.work;
  for (Brick& brick : BricksFromJson(message.at("bricks"))) {
    work.bricks.push_back(std::move(brick));
    --work.bricks_missing;
  }
  if (work.bricks_missing > 0) return;
  if (!work.bricks_file.empty()) {
    for (Brick& brick : BricksFromText(ReadSmallFile(work.bricks_file)))
      work.bricks.push_back(std::move(brick));
  }
  std::sort(work.bricks.begin(), work.bricks.end(),
            [](const Brick& a, const Brick& b) { return a.block < b.block; });
  const Lease whole = found->second;
  waiting_.erase(found);
  Do(whole);
  Want();
}

void FakeWorker::Want() {
  const int64_t room = std::max<int64_t>(0, options_.tiles_ahead - held_);
  client_->Send({{"type", "want"},
                 {"tiles", room},
                 {"stages", room},
                 {"assembles", std::max<int64_t>(0, room + options_.assembles_ahead)}});
}

}  // namespace tilery
