#include "scheduler/coordinator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "cluster/server.h"
#include "io/error.h"
#include "scheduler/grants.h"
#include "scheduler/host_links.h"
#include "scheduler/sessions.h"
#include "scheduler/settlement.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTick = 0.1;
constexpr double kProgress = 1.0;
constexpr double kLate = 1.0;         // a turn that took longer: our own fault, not the workers'
constexpr double kEndTime = 3.0;      // for workers to send their last profile
constexpr double kDeathNotice = 1.0;  // within which a supervisor tells that a process died
constexpr double kKillTime = 5.0;     // for a hung process to be ended
constexpr double kMarginShare = 0.2;  // of a lease: a worker renames nothing in the last fifth

int64_t ScratchLimit(const RunOptions& options, const Resume& resume) {
  if (options.scratch_limit >= 0) return options.scratch_limit;
  std::error_code error;
  // The first run makes the folder only with its first brick: on the disk of its parent.
  std::filesystem::path folder =
      std::filesystem::absolute(options.scratch.empty() ? "." : options.scratch, error);
  auto space = std::filesystem::space(folder, error);
  while (error == std::errc::no_such_file_or_directory && folder.has_relative_path()) {
    folder = folder.parent_path();
    space = std::filesystem::space(folder, error);
  }
  if (error) return INT64_MAX;
  int64_t there = static_cast<int64_t>(static_cast<double>(space.available) * 0.95);
  for (const auto& [unit, brick] : resume.bricks) there += brick.size;
  return there;
}

}  // namespace

struct Coordinator::Impl {
  Impl(const Plan& plan, const Resume& resume, Ledger& ledger_in, const WorkerContext& context_in,
       const RunOptions& options_in)
      : ledger(ledger_in),
        context(context_in),
        options(options_in),
        items(plan.items.size()),
        scratch_limit(ScratchLimit(options, resume)),
        queue(plan.items, {options.lease_s, options.max_attempts, scratch_limit}),
        builder(plan, context, ledger, ledger.epoch()),
        settlement(plan, ledger, queue, builder, options.scratch),
        server(options.addresses, options.token,
               {[this](PeerId peer, const Json& hello) { Joined(peer, hello); },
                [this](PeerId peer, const Json& message) { Received(peer, message); },
                [this](PeerId peer, const std::string&) { Left(peer); }}),
        hosts(options, ledger.epoch(), server,
              [this](const std::string& worker) { DrainWorker(worker); }) {
    settlement.StartFrom(resume, scratch_limit);
  }

  double Now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  // ---- messages ----

  void Joined(PeerId peer, const Json& hello) {
    if (hosts.Joined(peer, hello)) return;
    if (hello.value("epoch", int64_t{-1}) != ledger.epoch()) {
      throw Error(Fault::kInternal, "a worker of another run greets");
    }
    const size_t known = sessions.all().size();
    Session& session = sessions.Join(peer, hello, queue, Now());
    // Its renewals would keep those leases for ever that a broken link has swallowed.
    Later([this, &session, newest = hello.value("lease", int64_t{0})] {
      settlement.Rejoined(session, newest);
    });
    server.Send(peer, {{"type", "welcome"},
                       {"epoch", ledger.epoch()},
                       {"lease_s", options.lease_s},
                       {"margin_s", options.lease_s * kMarginShare},
                       {"context", welcome_context}});
    if (sessions.all().size() == known)
      server.Send(peer, {{"type", "drop"}, {"leases", Json::array()}, {"early", true}});
    if (drain_since) server.Send(peer, {{"type", "drain"}});
    if (end_since) server.Send(peer, {{"type", "end"}});
    queue.Renew(session.index, Now());
  }

  void Received(PeerId peer, const Json& message) {
    if (hosts.Received(peer, message)) return;
    Session* session = sessions.Of(peer);
    if (session == nullptr || !session->alive) return;
    const auto& type = message.at("type").get_ref<const std::string&>();
    if (type == "outcome") {
      // After a broken link a worker sends again what may have been lost.
      const auto number = message.value("seq", session->last_outcome + 1);
      if (number <= session->last_outcome) return;
      session->last_outcome = number;
      Later([this, session, lease = message.at("lease").get<int64_t>(),
             unit = message.at("unit").get<int64_t>(),
             outcome = OutcomeFromJson(message.at("outcome"))] {
        const int64_t before = settlement.result().items_done, units = session->report.units;
        settlement.Take(*session, lease, unit, outcome);
        if (session->report.units > units) session->report.last_s = Now();
        if (settlement.result().items_done > before) last_publish = Now();
      });
    } else if (type == "renew") {
      queue.Renew(session->index, Now());
      SessionTable::TakeRenewal(*session, message, Now());
      server.Send(peer, {{"type", "renewed"}, {"sent_us", message.at("sent_us")}});
    } else if (type == "want") {
      session->tiles_wanted = message.at("tiles").get<int64_t>();
      session->stages_wanted = message.at("stages").get<int64_t>();
      session->assembles_wanted = message.at("assembles").get<int64_t>();
      session->asked = true;
    } else if (type == "model") {
      model_pass.Ask({session->index, session->report.host, message.at("card").get<std::string>()},
                     message.at("can").get<bool>(), Now());
    } else if (type == "model_id") {
      model_pass.TakeId(session->index, message.at("id").get<std::string>());
    } else if (type == "profile") {
      SessionTable::TakeProfile(*session, message, Now());
    } else if (type == "bye") {
      Ended(*session);
      Later([this, session] { settlement.Left(*session); });
      sessions.Unlink(*session);
      server.Close(peer);
    }
  }

  void Left(PeerId peer) {
    if (hosts.Left(peer, Now())) return;
    if (Session* session = sessions.Of(peer)) sessions.Unlink(*session);
  }

  // ---- workers that end ----

  void WorkerDied(const std::string& worker, const std::string& how, Death death) {
    last_death = worker + ": " + how;
    Session* session = sessions.OldestAlive(worker);
    if (session == nullptr) return;
    if (death == Death::kNoMemory) return LetGo(*session);
    Bury(*session, session->hung.empty() ? how : session->hung);
  }

  void Ended(Session& session) {
    session.alive = false;
    session.report.left_s = Now();
    model_pass.Left(session.index);
  }

  void LetGo(Session& session) {
    Ended(session);
    if (session.peer != 0) server.Close(session.peer, true);
    sessions.Unlink(session);
    Later([this, &session] { settlement.Left(session); });
  }

  void Bury(Session& session, const std::string& how) {
    Ended(session);
    if (session.peer != 0) server.Close(session.peer, true);
    sessions.Unlink(session);
    Later([this, &session, how] { settlement.Died(session, how); });
  }

  void LookAfterWorkers(double now) {
    for (auto& s : sessions.all()) {
      if (!s->alive) continue;
      if (s->replaced_at >= 0 && now - s->replaced_at > kDeathNotice) {
        Bury(*s, "another process took its place");
      } else if (s->killed_at >= 0 && now - s->killed_at > kKillTime) {
        Bury(*s, s->hung);
      } else if (s->killed_at < 0 && s->peer != 0 &&
                 (queue.ActiveOf(s->index) > 0 || s->phase != "run") &&
                 now - s->changed_at > SessionTable::HungLimit(*s, options.hung_s)) {
        s->hung = "no sign of progress for " +
                  std::to_string(static_cast<int>(now - s->changed_at)) + " s in phase '" +
                  Printable(s->phase, 40) + "'";
        s->killed_at = now;
        if (!hosts.Kill(s->report.id) && options.kill_worker) options.kill_worker(s->report.id);
      }
    }
    Later([this, now] { settlement.Expire(now); });
    hosts.Look(now);
  }

  void DrainWorker(const std::string& worker) {
    for (auto& s : sessions.all()) {
      if (s->alive && s->peer != 0 && s->report.id == worker)
        server.Send(s->peer, {{"type", "drain"}});
    }
  }

  // ---- leases ----

  void GiveLeases() {
    if (drain_since || end_since) return;
    const double now = Now();
    auto answers =
        GrantLeases(sessions, queue, builder, now, [this](int64_t item, std::string why) {
          Later([this, item, why] { settlement.FailItem(item, "plan", why); });
        });
    for (LeaseAnswer& answer : answers) {
      if (!first_lease && !answer.leases.empty()) first_lease = now;
      server.Send(
          answer.session->peer,
          {{"type", "leases"}, {"leases", std::move(answer.leases)}, {"more", answer.more}});
    }
  }

  void PassModel() {
    const ModelPass::There there{options.first_host_worker + hosts.workers(), hosts.joined()};
    for (ModelPass::Answer& answer : model_pass.Look(there, Now())) {
      const Session* session = sessions.ByIndex(answer.worker);
      if (session->peer != 0) server.Send(session->peer, answer.message);
    }
  }

  // What touches queue and ledger together waits for the commit of this turn, in the order of
  // arrival: an error of the ledger then never meets code that judges messages.
  void Later(std::function<void()> work) { later.push_back(std::move(work)); }

  void Commit() {
    for (const auto& work : std::exchange(later, {})) work();
    std::map<PeerId, Json> drops;
    for (const auto& dropped : settlement.Commit()) {
      const Session* session = sessions.ByIndex(dropped.worker);
      if (session->alive && session->peer != 0) drops[session->peer].push_back(dropped.lease);
    }
    for (auto& [peer, leases] : drops) {
      server.Send(peer, {{"type", "drop"}, {"leases", std::move(leases)}});
    }
    for (auto& [session, lease, bricks] :
         ForwardBricks(sessions, queue, settlement.TakeAwaited(), Now())) {
      server.Send(session->peer,
                  {{"type", "bricks"}, {"lease", lease}, {"bricks", std::move(bricks)}});
    }
  }

  // ---- the run ----

  RunResult Run(const std::function<void(const Progress&)>& progress,
                const std::function<void()>& tick) {
    start = Clock::now();
    double last_turn = 0, next_tick = 0, next_progress = 0;
    while (!Over()) {
      server.Poll(std::clamp(next_tick - Now(), 0.0, kTick));
      const double now = Now();
      // Leases run by our clock only while we can hear their renewals.
      if (const double gap = now - last_turn; gap > kLate) CameLate(gap);
      last_turn = now;
      if (!CommitOrDrain()) break;
      if (now >= next_tick) {
        next_tick = now + kTick;
        if (tick && !Writing(tick)) break;  // it may add to the ledger, too
        LookAfterWorkers(now);
        TooManyFailures();
        if (!CommitOrDrain()) break;
      }
      if (options.model_pass.on) PassModel();
      GiveLeases();
      if (progress && now >= next_progress) {
        next_progress = now + kProgress;
        progress(MakeProgress(drain_since ? "draining" : "running"));
      }
    }
    return Finish(progress, tick);
  }

  void CameLate(double gap) {
    queue.Extend(gap);
    for (auto& s : sessions.all()) s->changed_at += gap;
  }

  // False: the ledger can't be written (a full disk), which ends the run in words.
  bool Writing(const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      if (error.fault() != Fault::kOutput) throw;
      interrupted_by = error.what();
      ledger_failed = true;
      return false;
    }
  }
  bool CommitOrDrain() {
    return Writing([this] { Commit(); });
  }

  void TooManyFailures() {
    const auto failed = static_cast<double>(settlement.result().items_failed);
    if (drain_since || items == 0 || failed <= options.max_failures * static_cast<double>(items))
      return;
    if (queue.AllDone()) return;
    too_many = true;
    Drain(std::to_string(settlement.result().items_failed) + " of " + std::to_string(items) +
          " items failed, more than execution.failures.max allows");
  }

  void Drain(const std::string& why) {
    if (drain_since || end_since) return;
    drain_since = Now();
    interrupted_by = why;
    hosts.Stop();
    for (auto& s : sessions.all()) {
      if (s->peer != 0) server.Send(s->peer, {{"type", "drain"}});
    }
  }

  bool Over() const {
    if (queue.AllDone()) return true;
    if (exhausted && sessions.alive() == 0) return true;
    if (!drain_since) return false;
    return queue.counts().leased == 0 || Now() - *drain_since > options.drain_s;
  }

  // Ends the workers and takes their last words.
  RunResult Finish(const std::function<void(const Progress&)>& progress,
                   const std::function<void()>& tick) {
    if (!queue.AllDone() && interrupted_by.empty()) {
      const std::string why = exhausted.value_or("");
      const bool told = why.find(last_death) != std::string::npos;
      interrupted_by = why + (told ? "" : " (" + last_death + ")");
    }
    end_since = Now();
    hosts.End();
    for (auto& s : sessions.all()) {
      if (s->peer != 0) server.Send(s->peer, {{"type", "end"}});
    }
    const auto linked = [this] {
      return std::any_of(sessions.all().begin(), sessions.all().end(),
                         [](const auto& s) { return s->alive && s->peer != 0; });
    };
    double next_tick = 0;
    while ((linked() || hosts.any_linked()) && Now() - *end_since < kEndTime) {
      server.Poll(0.02);
      if (Now() >= next_tick) {
        next_tick = Now() + kTick;
        if (tick) Writing(tick);
      }
    }
    // What came in after the end of a drained run counts, too.
    if (!ledger_failed) CommitOrDrain();

    RunResult result = settlement.result();
    result.wall_s = Now();
    result.units_twice = queue.leased_twice();
    result.control_in_bytes = server.traffic().in;
    result.control_out_bytes = server.traffic().out;
    result.first_lease_s = first_lease;
    result.last_publish_s = last_publish;
    if (ledger_failed || (!queue.AllDone() && !too_many)) {
      result.status = "interrupted";
    } else {
      result.status = result.items_failed > 0 ? "failed" : "done";
    }
    if (result.status == "interrupted" || too_many) result.interrupted_by = interrupted_by;
    for (auto& s : sessions.all()) {
      if (s->alive) Ended(*s);
      result.workers.push_back(SessionTable::Report(*s, false, true));
    }
    if (progress) progress(MakeProgress(result.status));
    return result;
  }

  Progress MakeProgress(const std::string& state) {
    Progress p;
    p.state = state;
    p.tiles = settlement.tiles_total();
    p.tiles_done = settlement.tiles_done();
    const double elapsed = first_lease ? Now() - *first_lease : 0;
    if (settlement.tiles_now() > 0 && elapsed > 0.5) {
      p.eta_s = static_cast<double>(p.tiles - p.tiles_done) * elapsed /
                static_cast<double>(settlement.tiles_now());
    }
    const auto counts = queue.counts();
    p.waiting = counts.waiting;
    p.leased = counts.leased;
    p.done = counts.done;
    p.failed = counts.failed;
    for (auto& s : sessions.all()) {
      if (s->alive)
        p.workers.push_back(SessionTable::Report(*s, queue.HeldBy(s->index) > 0, false));
    }
    return p;
  }

  Ledger& ledger;
  const WorkerContext context;
  const RunOptions options;
  const size_t items;
  const int64_t scratch_limit;
  const Json welcome_context = ToJson(context);
  UnitQueue queue;
  WorkBuilder builder;
  SessionTable sessions;
  ModelPass model_pass{options.model_pass};
  Settlement settlement;
  Clock::time_point start = Clock::now();
  std::optional<double> first_lease, last_publish, drain_since, end_since;
  std::optional<std::string> exhausted;
  std::string interrupted_by, last_death;
  bool too_many = false, ledger_failed = false;
  std::vector<std::function<void()>> later;
  ControlServer server;  // its handlers use all of the above, and of
  HostLinks hosts;
};

Coordinator::Coordinator(const Plan& plan, const Resume& resume, Ledger& ledger,
                         const WorkerContext& context, const RunOptions& options)
    : impl_(std::make_unique<Impl>(plan, resume, ledger, context, options)) {}

Coordinator::~Coordinator() = default;

uint16_t Coordinator::port() const { return impl_->server.port(); }

RunResult Coordinator::Run(const std::function<void(const Progress&)>& progress,
                           const std::function<void()>& tick) {
  return impl_->Run(progress, tick);
}

void Coordinator::Drain(const std::string& why) {
  impl_->server.Post([impl = impl_.get(), why] { impl->Drain(why); });
}

void Coordinator::WorkerDied(const std::string& worker, const std::string& how, Death death) {
  impl_->server.Post(
      [impl = impl_.get(), worker, how, death] { impl->WorkerDied(worker, how, death); });
}

void Coordinator::WorkersExhausted(const std::string& why) {
  impl_->server.Post([impl = impl_.get(), why] { impl->exhausted = why; });
}

}  // namespace tilery
