#include "scheduler/host_links.h"

#include <algorithm>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

constexpr double kSilent = kHostGiveUp + 5;  // by then it has ended

}  // namespace

HostLinks::HostLinks(const RunOptions& options, int64_t epoch, ControlServer& server,
                     std::function<void(const std::string&)> drain_worker)
    : options_(options),
      epoch_(epoch),
      server_(server),
      drain_worker_(std::move(drain_worker)),
      desk_(options.hosts.value_or(HostPolicy{}), options.first_host_worker) {}

bool HostLinks::Joined(PeerId peer, const Json& hello) {
  const std::string role = hello.value("role", std::string());
  if (role.empty()) return false;
  if (role == "look") {
    server_.Send(peer, {{"type", "welcome"}, {"epoch", epoch_}});
    server_.Close(peer);
    return true;
  }
  if (role != "host") throw Error(Fault::kInternal, "a greeting with an unknown role");
  if (!options_.hosts || ended_) {
    HostOrder order;
    order.refused = ended_ ? "the run has ended" : "this run has all its workers";
    server_.Send(peer, {{"type", "welcome"}, {"epoch", epoch_}, {"order", ToJson(order)}});
    server_.Close(peer);
    return true;
  }
  const HostDesk::Admitted admitted = desk_.Admit(peer, hello);
  server_.Send(peer, {{"type", "welcome"}, {"epoch", epoch_}, {"order", ToJson(admitted.order)}});
  if (!admitted.order.refused.empty()) {
    Tell({admitted.host->name, {}, admitted.order.refused, "", "", false, false, false});
    desk_.Leave(*admitted.host);
    server_.Close(peer);
    return true;
  }
  if (stopped_) server_.Send(peer, {{"type", "stop"}});
  if (!admitted.again) {
    Tell({admitted.host->name, admitted.order.workers, "", "", "", false, false, false});
  }
  return true;
}

bool HostLinks::Received(PeerId peer, const Json& message) {
  HostDesk::Host* const host = desk_.Of(peer);
  if (host == nullptr) return false;
  const auto& type = message.at("type").get_ref<const std::string&>();
  if (type == "renew") {
    server_.Send(peer, {{"type", "renewed"}, {"sent_us", message.at("sent_us")}});
  } else if (type == "death") {
    HostNews news;
    news.host = host->name;
    news.worker = message.at("worker").get<std::string>();
    news.how = message.at("how").get<std::string>();
    news.gone = message.at("gone").get<bool>();
    news.refuses_job = message.at("refused").get<bool>();
    news.no_memory = message.at("no_memory").get<bool>();
    // Only of its own.
    if (desk_.OfWorker(news.worker) != host) throw Error(Fault::kInternal, "no worker of its own");
    if (news.gone) desk_.Forget(*host, news.worker);
    Tell(std::move(news));
  } else if (type == "leave") {
    for (const HostOrder::Worker& worker : host->workers) drain_worker_(worker.id);
  } else if (type == "bye") {
    server_.Close(peer);
    Gone(*host, "its host " + Printable(host->name) + " has left the run");
  }
  return true;
}

bool HostLinks::Left(PeerId peer, double now) {
  HostDesk::Host* const host = desk_.Of(peer);
  if (host == nullptr) return false;
  host->peer = 0;
  host->unlinked_at = now;
  return true;
}

bool HostLinks::Kill(const std::string& worker) {
  HostDesk::Host* const host = desk_.OfWorker(worker);
  if (host == nullptr || host->peer == 0) return false;
  server_.Send(host->peer, {{"type", "kill"}, {"worker", worker}});
  return true;
}

void HostLinks::Look(double now) {
  for (auto& host : desk_.all()) {
    if (host->gone || host->peer != 0 || now - host->unlinked_at < kSilent) continue;
    Gone(*host, "its host " + Printable(host->name) + " has not been heard of for " +
                    std::to_string(static_cast<int>(kSilent)) + " s");
  }
}

void HostLinks::Gone(HostDesk::Host& host, const std::string& how) {
  const std::vector<HostOrder::Worker> workers = host.workers;
  desk_.Leave(host);
  for (const HostOrder::Worker& worker : workers)
    Tell({host.name, {}, "", worker.id, how, true, false, false});
}

void HostLinks::Stop() {
  stopped_ = true;
  for (auto& host : desk_.all()) {
    if (host->peer != 0) server_.Send(host->peer, {{"type", "stop"}});
  }
}

void HostLinks::End() {
  ended_ = true;
  for (auto& host : desk_.all()) {
    if (host->peer != 0) server_.Send(host->peer, {{"type", "end"}});
  }
}

bool HostLinks::any_linked() {
  for (auto& host : desk_.all())
    if (host->peer != 0) return true;
  return false;
}

int HostLinks::joined() {
  return static_cast<int>(std::count_if(desk_.all().begin(), desk_.all().end(),
                                        [](const auto& host) { return !host->gone; }));
}

int HostLinks::workers() {
  int workers = 0;
  for (auto& host : desk_.all())
    if (!host->gone) workers += static_cast<int>(host->workers.size());
  return workers;
}

void HostLinks::Tell(HostNews news) {
  if (options_.host_news) options_.host_news(news);
}

}  // namespace tilery
