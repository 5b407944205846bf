#include "scheduler/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/error.h"

namespace tilery {

Json ToJson(const HostOffer& offer) {
  Json cards = Json::array();
  for (const HostOffer::Card& card : offer.cards)
    cards.push_back({{"device", card.device}, {"uuid", card.uuid}, {"name", card.name}});
  return {{"cpus", offer.cpus}, {"rank", offer.rank}, {"cards", std::move(cards)}};
}

HostOffer HostOfferFromJson(const Json& json) {
  HostOffer offer;
  json.at("cpus").get_to(offer.cpus);
  json.at("rank").get_to(offer.rank);
  for (const Json& card : json.at("cards"))
    offer.cards.push_back({card.at("device").get<std::string>(), card.at("uuid").get<std::string>(),
                           card.at("name").get<std::string>()});
  return offer;
}

Json ToJson(const HostOrder& order) {
  Json workers = Json::array();
  for (const HostOrder::Worker& worker : order.workers)
    workers.push_back({{"id", worker.id}, {"device", worker.device}, {"threads", worker.threads}});
  return {{"refused", order.refused},
          {"precision", order.precision},
          {"folders", order.folders},
          {"workers", std::move(workers)},
          {"fixed_threads", order.fixed_threads}};
}

HostOrder HostOrderFromJson(const Json& json) {
  HostOrder order;
  json.at("refused").get_to(order.refused);
  json.at("precision").get_to(order.precision);
  json.at("folders").get_to(order.folders);
  for (const Json& worker : json.at("workers"))
    order.workers.push_back({worker.at("id").get<std::string>(),
                             worker.at("device").get<std::string>(),
                             worker.at("threads").get<int>()});
  json.at("fixed_threads").get_to(order.fixed_threads);
  return order;
}

HostDesk::Admitted HostDesk::Admit(PeerId peer, const Json& hello) {
  const std::string name = hello.at("host").get<std::string>();
  const auto pid = hello.at("pid").get<int64_t>();
  const HostOffer offer = HostOfferFromJson(hello.at("offer"));
  for (auto& host : all_) {
    if (host->gone || host->name != name || host->pid != pid) continue;
    host->peer = peer;
    host->unlinked_at = -1;
    return {host.get(),
            {"", policy_.precision, policy_.folders, host->workers, policy_.threads.has_value()},
            true};
  }
  HostOrder order = OrderFor(name, offer);
  auto host = std::make_unique<Host>();
  host->peer = peer;
  host->name = name;
  host->pid = pid;
  host->workers = order.workers;
  all_.push_back(std::move(host));
  return {all_.back().get(), std::move(order)};
}

HostOrder HostDesk::OrderFor(const std::string& host, const HostOffer& offer) {
  HostOrder order;
  order.precision = policy_.precision;
  order.folders = policy_.folders;
  order.fixed_threads = policy_.threads.has_value();
  std::vector<std::string> devices;
  std::map<std::string, int>& taken = taken_[host];
  if (policy_.card.empty()) {
    devices = {"cpu"};
  } else {
    std::string others;
    for (const HostOffer::Card& card : offer.cards) {
      if (card.name == policy_.card) devices.push_back(card.device);
      if (card.name != policy_.card && others.find(card.name) == std::string::npos)
        others += (others.empty() ? "" : ", ") + card.name;
    }
    if (devices.empty()) {
      order.refused = fmt::format("{} has no GPU of this run's kind, {}; it has {}",
                                  Printable(host), Printable(policy_.card),
                                  others.empty() ? "none that may be used" : Printable(others));
      return order;
    }
  }
  int count = policy_.workers.value_or(offer.rank ? 1 : static_cast<int>(devices.size()));
  if (!policy_.workers && !policy_.card.empty()) {
    const size_t all = devices.size();
    std::erase_if(devices, [&](const std::string& device) { return taken[device] > 0; });
    count = std::min(count, static_cast<int>(devices.size()));
    if (count == 0) {
      order.refused = fmt::format(
          "{} has {} of this run's GPUs ({}), and each has a worker already: start fewer "
          "processes there, or say --workers N with how many each starts, which then share GPUs",
          Printable(host), all, Printable(policy_.card));
      return order;
    }
  }
  const int threads = std::max(1, policy_.threads.value_or(offer.cpus) / std::max(1, count));
  for (int k = 0; k < count; ++k) {
    const std::string device =
        *std::min_element(devices.begin(), devices.end(),
                          [&](const auto& a, const auto& b) { return taken[a] < taken[b]; });
    ++taken[device];
    order.workers.push_back({fmt::format("w{}", next_++), device, threads});
  }
  return order;
}

HostDesk::Host* HostDesk::Of(PeerId peer) {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const auto& host) { return host->peer == peer; });
  return found == all_.end() ? nullptr : found->get();
}

HostDesk::Host* HostDesk::OfWorker(const std::string& worker) {
  for (auto& host : all_) {
    if (host->gone) continue;
    for (const HostOrder::Worker& one : host->workers) {
      if (one.id == worker) return host.get();
    }
  }
  return nullptr;
}

void HostDesk::Leave(Host& host) {
  if (host.gone) return;
  host.gone = true;
  host.peer = 0;
  for (const HostOrder::Worker& worker : host.workers) --taken_[host.name][worker.device];
}

void HostDesk::Forget(Host& host, const std::string& worker) {
  std::erase_if(host.workers, [&](const auto& one) { return one.id == worker; });
}

}  // namespace tilery
