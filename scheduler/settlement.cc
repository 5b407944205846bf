#include "scheduler/settlement.h"

#include <algorithm>

#include "io/error.h"

namespace tilery {
namespace {

// A name that a worker gives to a file in scratch must stay there.
bool PlainName(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) && name.find('/') == std::string::npos;
}

std::string Times(int n) {
  return n == 1 ? "once" : n == 2 ? "twice" : std::to_string(n) + " times";
}

}  // namespace

Settlement::Settlement(const Plan& plan, Ledger& ledger, UnitQueue& queue, WorkBuilder& builder,
                       const std::filesystem::path& scratch)
    : plan_(plan), ledger_(ledger), queue_(queue), builder_(builder), scratch_(scratch) {}

void Settlement::StartFrom(const Resume& resume, int64_t scratch_limit) {
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const Item& item = plan_.items[i];
    const auto index = static_cast<int64_t>(i);
    const ItemState state = i < resume.items.size() ? resume.items[i] : ItemState::kOpen;
    if (!item.refused.empty() || state == ItemState::kFailed) {
      // Refused by the plan: it has no units and no tiles.
      ++result_.items_failed;
      result_.failures.push_back({item.input, "plan", item.refused});
      ledger_.RecordFailure(item.key, item.input, "plan", item.refused);
      queue_.Fail(index);
      continue;
    }
    tiles_total_ += item.tiles;
    if (state == ItemState::kUnchanged) {
      ++result_.items_unchanged;
      tiles_done_ += item.tiles;
      queue_.MarkUnchanged(index);
    }
  }
  for (const auto& [unit, brick] : resume.bricks) {
    queue_.MarkDone(unit);
    ++result_.units_reused;
    result_.tiles_reused += brick.tiles;
    tiles_done_ += brick.tiles;
    builder_.CountTiles(queue_.ItemOf(unit), brick.tiles);
  }
  for (const auto& [item, stage] : resume.stages) {
    if (!queue_.ItemOpen(item)) continue;
    queue_.MarkDone(plan_.UnitOf(item, UnitKind::kStage));
    ++result_.units_reused;
    builder_.Staged(item, stage.file);
  }
  result_.tiles_reused -= resume.adopted_tiles;
  result_.tiles_inferred = resume.adopted_tiles;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (!queue_.ItemOpen(index)) continue;
    const std::string why = UnitQueue::BeyondScratch(plan_.items[i], scratch_limit);
    if (!why.empty()) FailItem(index, "plan", why);
  }
}

void Settlement::Take(Session& session, int64_t lease, int64_t unit, const Outcome& outcome) {
  if (const auto* done = std::get_if<Done>(&outcome)) return TakeDone(session, lease, unit, *done);
  // All else is said of the lease, and only its holder may say it.
  if (!queue_.Holds(lease, session.index)) return;
  if (const auto* failed = std::get_if<Failed>(&outcome)) {
    FailItem(queue_.ItemOf(queue_.UnitOf(lease)), failed->stage, failed->reason);
  } else if (const auto* retry = std::get_if<Retry>(&outcome)) {
    Judge(queue_.Return(lease, session.index, true), retry->stage, retry->reason);
  } else {
    TakeLost(session, lease, std::get<LostBrick>(outcome));
  }
}

void Settlement::TakeDone(Session& session, int64_t lease, int64_t unit, const Done& done) {
  if (unit < 0 || unit >= queue_.units()) {
    throw Error(Fault::kInternal, "a result for unit " + std::to_string(unit) + " of " +
                                      std::to_string(queue_.units()));
  }
  const UnitRef ref = queue_.Find(unit);
  const Item& item = plan_.items[static_cast<size_t>(ref.item)];
  const bool brick = ref.kind == UnitKind::kInfer && item.infer_units > 1;
  const bool output = ref.kind == UnitKind::kAssemble || (ref.kind == UnitKind::kInfer && !brick);
  const std::string key = brick ? builder_.BrickKey(ref.item, ref.block) : item.key;
  if (output ? done.file != item.output : !PlainName(done.file, key + ".")) {
    throw Error(Fault::kInternal, "a result for unit " + std::to_string(unit) +
                                      " in the wrong file '" + Printable(done.file) + "'");
  }
  if (queue_.Finish(lease, unit, dropped_)) return Accept(session, ref, unit, done);

  // Another attempt was first, or nobody wants it any more.
  result_.tiles_repeated += done.tiles + done.repeated;
  output ? TakeSecondOutput(item, done) : TakeSecondFile(item, key, done);
}

// What the same numerics have made must be the same.
void Settlement::Compare(const Item& item, const std::string& first, const std::string& second) {
  if (first == second) return;
  ++result_.units_different;
  if (result_.different.size() < RunResult::kDifferentNamed) result_.different.insert(item.input);
}

void Settlement::TakeSecondFile(const Item& item, const std::string& key, const Done& done) {
  const auto record = ledger_.FindBrick(key);
  if (record && record->file == done.file) return;
  if (record) Compare(item, record->hash, done.published.hash);
  RemoveLater(done.file);
}

void Settlement::TakeSecondOutput(const Item& item, const Done& done) {
  auto record = ledger_.FindOutput(item.output);
  if (!record || !record->published) return;
  Compare(item, record->file.hash, done.published.hash);
  // If it was renamed later than the first one, it is what lies there.
  if (StampOf(item.output) != done.published.stamp) return;
  record->file = done.published;
  ledger_.RecordOutput(*record);
}

void Settlement::Accept(Session& session, const UnitRef& ref, int64_t unit, const Done& done) {
  const Item& item = plan_.items[static_cast<size_t>(ref.item)];
  ++result_.units_run;
  ++session.report.units;
  result_.tiles_repeated += done.repeated;
  session.report.repeated += done.repeated;
  if (again_.erase(unit) > 0) {
    // Its tiles were accepted once; over all runs each is counted exactly once.
    result_.tiles_repeated += done.tiles;
  } else {
    result_.tiles_inferred += done.tiles;
    session.report.tiles += done.tiles;
    result_.tiles_careful += done.careful;
    session.report.careful += done.careful;
    if (done.careful > 0) {
      auto& named = result_.careful_items;
      if (named.size() < RunResult::kCarefulNamed || named.contains(item.input))
        named[item.input] += done.careful;
    }
    tiles_done_ += done.tiles;
    tiles_now_ += done.tiles;
    if (item.infer_units > 1) builder_.CountTiles(ref.item, done.tiles);
  }
  if (ref.kind == UnitKind::kStage) {
    ledger_.RecordBrick({item.key, done.file, done.published.size, done.published.hash, 0});
    return builder_.Staged(ref.item, done.file);
  }
  if (ref.kind == UnitKind::kInfer && item.infer_units > 1) {
    const std::string key = builder_.BrickKey(ref.item, ref.block);
    ledger_.RecordBrick({key, done.file, done.published.size, done.published.hash, done.tiles});
    if (queue_.EarlyLease(ref.item)) awaited_[ref.item].push_back({ref.block, done.file, key});
    return;
  }
  ledger_.RecordOutput(
      {item.output, builder_.OutputKeyOf(ref.item), true, done.published, item.tiles});
  ++result_.items_done;
  if (item.infer_units > 1 || item.staged) CloseItem(ref.item);
}

void Settlement::TakeLost(Session& session, int64_t lease, const LostBrick& lost) {
  int64_t unit = lost.unit;
  if (unit < 0 || unit >= queue_.units()) {
    Judge(queue_.Return(lease, session.index, true), "read", lost.reason);
    return;
  }
  const UnitRef ref = queue_.Find(unit);
  const bool was_done = queue_.UnitDone(unit);
  const auto back = queue_.LoseResult(lease, session.index, unit);
  if (was_done && back.unit == unit && ref.kind == UnitKind::kInfer) {
    const std::string key = builder_.BrickKey(ref.item, ref.block);
    if (const auto record = ledger_.FindBrick(key)) RemoveLater(record->file);
    ledger_.ForgetBrick(key);
    again_.insert(unit);
  }
  if (ref.kind == UnitKind::kStage) {
    ledger_.ForgetBrick(plan_.items[static_cast<size_t>(ref.item)].key);
  }
  Judge(back, "read", lost.reason);
}

void Settlement::Died(Session& session, const std::string& how) {
  for (const auto& back : queue_.WorkerDied(session.index)) {
    Judge(back, "run", "worker " + session.report.id + " died: " + how);
  }
}

void Settlement::Left(Session& session) { queue_.Abandon(session.index); }

void Settlement::Rejoined(Session& session, int64_t newest) {
  queue_.AbandonUnheard(session.index, newest);
  queue_.AbandonEarly(session.index);
}

void Settlement::Expire(double now) {
  for (const auto& back : queue_.Expire(now)) {
    Judge(back, "run", "its worker was not heard of for the time of a lease");
  }
}

void Settlement::Judge(const UnitQueue::CameBack& back, const std::string& stage,
                       const std::string& reason) {
  if (back.back != UnitQueue::Back::kSpent) return;
  const UnitRef ref = queue_.Find(back.unit);
  const std::string what =
      std::string(UnitKindName(ref.kind)) + " unit " + std::to_string(ref.block);
  const std::string why =
      back.poisoned ? what + " ended two workers and was set aside; the last: "
                    : what + " failed " + Times(queue_.attempts(back.unit)) + "; the last: ";
  FailItem(back.item, stage, why + reason);
}

void Settlement::FailItem(int64_t item, const std::string& stage, const std::string& reason) {
  if (!queue_.ItemOpen(item)) return;
  const Item& failed = plan_.items[static_cast<size_t>(item)];
  const auto dropped = queue_.Fail(item);
  dropped_.insert(dropped_.end(), dropped.begin(), dropped.end());
  ++result_.items_failed;
  result_.failures.push_back({failed.input, stage, reason});
  ledger_.RecordFailure(failed.key, failed.input, stage, reason);
  tiles_total_ -= failed.tiles - builder_.tiles_done(item);
  CloseItem(item);
}

void Settlement::CloseItem(int64_t index) {
  const Item& item = plan_.items[static_cast<size_t>(index)];
  for (int64_t block = 0; item.infer_units > 1 && block < item.infer_units; ++block) {
    const std::string key = builder_.BrickKey(index, block);
    const auto record = ledger_.FindBrick(key);
    if (!record) continue;
    ledger_.ForgetBrick(key);
    RemoveLater(record->file);
    bricks_consumed_ = true;
  }
  if (item.staged) ledger_.ForgetBrick(item.key);
  for (const std::string& file : builder_.Forget(index)) RemoveLater(file);
}

std::vector<UnitQueue::Dropped> Settlement::Commit() {
  // What consumed a brick must outlast a power cut before the brick goes.
  ledger_.Commit(bricks_consumed_ ? Durability::kFsync : Durability::kRename);
  bricks_consumed_ = false;
  for (const std::string& file : remove_) {
    std::error_code ignored;
    std::filesystem::remove(scratch_ / file, ignored);
  }
  remove_.clear();
  for (const auto& withdrawn : queue_.TakeWithdrawn()) dropped_.push_back(withdrawn);
  return std::exchange(dropped_, {});
}

}  // namespace tilery
