#include "scheduler/sessions.h"

#include <algorithm>

namespace tilery {
namespace {

constexpr size_t kTraceKept = 20000;  // newest events per worker
constexpr double kLoadLimit = 600, kCompileLimit = 3600;

std::string Text(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

template <typename T>
T Number(const Json& json, const char* name, T otherwise) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<T>() : otherwise;
}

}  // namespace

void ClockOffset::Heard(int64_t sent_us, double now) {
  offsets_[heard_++ % kKept] = static_cast<int64_t>(now * 1e6) - sent_us;
}

int64_t ClockOffset::us() const {
  const auto end = offsets_.begin() + static_cast<ptrdiff_t>(std::min(heard_, kKept));
  return heard_ == 0 ? 0 : *std::min_element(offsets_.begin(), end);
}

Session& SessionTable::Join(PeerId peer, const Json& hello, UnitQueue& queue, double now) {
  const std::string id = Text(hello, "worker");
  const auto pid = Number<int64_t>(hello, "pid", 0);
  const std::string host = Text(hello, "host");
  for (const auto& session : all_) {
    if (!session->alive || session->report.id != id) continue;
    if (session->report.pid == pid && session->report.host == host) {
      by_peer_.erase(session->peer);
      by_peer_[peer] = session.get();
      session->peer = peer;
      session->changed_at = now;
      return *session;
    }
    if (session->replaced_at < 0) session->replaced_at = now;
  }
  auto session = std::make_unique<Session>();
  session->report.id = id;
  session->report.host = host;
  session->report.device = Text(hello, "device");
  session->report.pid = pid;
  session->report.joined_s = now;
  session->report.state = "idle";
  session->report.stages = Json::object();
  session->index = queue.AddWorker();
  session->peer = peer;
  session->changed_at = now;
  by_peer_[peer] = session.get();
  all_.push_back(std::move(session));
  return *all_.back();
}

Session* SessionTable::Of(PeerId peer) {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? nullptr : found->second;
}

Session* SessionTable::OldestAlive(const std::string& id) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const auto& s) { return s->alive && s->report.id == id; });
  return found == all_.end() ? nullptr : found->get();
}

Session* SessionTable::ByIndex(UnitQueue::WorkerIndex index) {
  // Workers of the queue are added one per session, in the same order.
  return all_[static_cast<size_t>(index)].get();
}

void SessionTable::Unlink(Session& session) {
  by_peer_.erase(session.peer);
  session.peer = 0;
  session.tiles_wanted = session.stages_wanted = session.assembles_wanted = 0;
  session.asked = false;
}

int SessionTable::alive() const {
  return static_cast<int>(
      std::count_if(all_.begin(), all_.end(), [](const auto& s) { return s->alive; }));
}

void SessionTable::TakeRenewal(Session& session, const Json& renewal, double now) {
  if (const auto sent = renewal.find("sent_us"); sent != renewal.end() && sent->is_number())
    session.clock.Heard(sent->get<int64_t>(), now);
  const std::string phase = Text(renewal, "phase");
  const auto batches = Number<int64_t>(renewal, "batches", 0);
  if (phase != session.phase || batches != session.batches) {
    if (batches > session.batches && phase == session.phase && session.batches >= 0) {
      const double each =
          (now - session.changed_at) / static_cast<double>(batches - session.batches);
      session.slowest_batch_s = std::max(session.slowest_batch_s, each);
    }
    session.phase = phase;
    session.batches = batches;
    session.changed_at = now;
  }
  session.report.busy_s = Number(renewal, "busy_s", session.report.busy_s);
  session.report.peak_host_bytes =
      std::max(session.report.peak_host_bytes, Number<int64_t>(renewal, "private_bytes", 0));
}

void SessionTable::TakeProfile(Session& session, const Json& profile, double now) {
  WorkerReport& report = session.report;
  if (const auto stages = profile.find("stages"); stages != profile.end() && stages->is_object()) {
    report.stages = *stages;
  }
  report.model_s = Number(profile, "model_s", report.model_s);
  for (const auto& [key, into] :
       {std::pair{"model_idle_s", &report.model_idle_s}, std::pair{"queues", &report.queues},
        std::pair{"model", &report.model}}) {
    const auto found = profile.find(key);
    if (found != profile.end() && found->is_object()) *into = *found;
  }
  report.busy_s = Number(profile, "busy_s", report.busy_s);
  report.idle_s = std::max(0.0, Number(profile, "alive_s", report.busy_s) - report.busy_s);
  report.peak_host_bytes =
      std::max(report.peak_host_bytes, Number<int64_t>(profile, "peak_host_bytes", 0));
  report.peak_device_bytes =
      std::max(report.peak_device_bytes, Number<int64_t>(profile, "peak_device_bytes", 0));
  report.steady_allocations =
      Number<int64_t>(profile, "steady_allocations", report.steady_allocations);
  const auto trace = profile.find("trace");
  if (trace == profile.end() || !trace->is_array()) return;
  session.clock.Heard(Number<int64_t>(profile, "clock_us", 0), now);
  const int64_t offset_us = session.clock.us();
  for (const Json& event : *trace) {
    if (!event.is_array() || event.size() != 5) continue;
    session.trace.push_back({event[0].get<std::string>(), event[1].get<int64_t>() + offset_us,
                             event[2].get<int64_t>(), event[3].get<int64_t>(),
                             event[4].get<int64_t>()});
    if (session.trace.size() > kTraceKept) session.trace.pop_front();
  }
}

double SessionTable::HungLimit(const Session& session, double usual) {
  if (session.phase == "load" || session.phase == "warmup") return kLoadLimit;
  if (session.phase == "compile") return kCompileLimit;
  return std::max(usual, 20 * session.slowest_batch_s);
}

WorkerReport SessionTable::Report(const Session& session, bool busy, bool whole) {
  WorkerReport report = session.report;
  report.state = !session.alive ? "gone" : busy ? "busy" : "idle";
  if (!whole) {
    report.stages = nullptr;
    return report;
  }
  report.trace.assign(session.trace.begin(), session.trace.end());
  return report;
}

}  // namespace tilery
