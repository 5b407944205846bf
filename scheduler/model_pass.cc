#include "scheduler/model_pass.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tilery {
namespace {

const Json kReadIt = {{"type", "model"}, {"id", ""}};

}  // namespace

void ModelPass::Ask(const Member& member, bool can, double now) {
  if (!asked_.insert(member.worker).second) return;
  if (since_ < 0) since_ = now;
  if (!can) return;
  if (state_ != State::kGathering || !options_.on) {
    answers_.push_back({member.worker, kReadIt});
  } else {
    members_.push_back(member);
  }
}

void ModelPass::TakeId(int32_t worker, const std::string& id) {
  if (state_ != State::kMakingId || members_.empty() || members_[0].worker != worker) return;
  if (id.empty()) return AllRead();
  const auto size = static_cast<int>(members_.size());
  for (int rank = 0; rank < size; ++rank) {
    answers_.push_back({members_[static_cast<size_t>(rank)].worker,
                        {{"type", "model"}, {"id", id}, {"rank", rank}, {"size", size}}});
  }
  members_.clear();
  state_ = State::kOver;
}

// The others can't begin without it.
void ModelPass::Left(int32_t worker) {
  asked_.erase(worker);
  const auto its = std::find_if(members_.begin(), members_.end(),
                                [&](const Member& member) { return member.worker == worker; });
  if (its == members_.end()) return;
  const bool root = its == members_.begin();
  members_.erase(its);
  if (state_ == State::kMakingId && (root || members_.size() < 2)) AllRead();
}

std::vector<ModelPass::Answer> ModelPass::Look(const There& there, double now) {
  if (state_ == State::kGathering && !members_.empty()) {
    const bool all =
        static_cast<int>(asked_.size()) >= there.workers && there.hosts >= options_.hosts;
    if (all || now - since_ >= kGather_s) {
      Choose();
      since_ = now;
    }
  } else if (state_ == State::kMakingId && now - since_ >= kId_s) {
    AllRead();
  }
  return std::exchange(answers_, {});
}

void ModelPass::Choose() {
  std::set<std::pair<std::string, std::string>> cards;
  std::set<std::string> hosts;
  std::vector<Member> chosen;
  for (const Member& member : members_) {
    if (cards.emplace(member.host, member.card).second) {
      chosen.push_back(member);
      hosts.insert(member.host);
    } else {
      answers_.push_back({member.worker, kReadIt});
    }
  }
  members_ = std::move(chosen);
  if (members_.size() < 2 || static_cast<int>(hosts.size()) < options_.least_hosts)
    return AllRead();
  state_ = State::kMakingId;
  answers_.push_back({members_[0].worker, {{"type", "model"}, {"root", true}}});
}

void ModelPass::AllRead() {
  for (const Member& member : members_) answers_.push_back({member.worker, kReadIt});
  members_.clear();
  state_ = State::kOver;
}

}  // namespace tilery
