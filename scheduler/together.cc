#include "scheduler/together.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/error.h"

namespace tilery {
namespace {

// Of an even number the lower one.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<double> RateOf(const WorkerReport& worker) {
  if (worker.tiles == 0 || worker.model_s <= 0) return std::nullopt;
  return static_cast<double>(worker.tiles) / worker.model_s;
}

int64_t BytesOf(const WorkerReport& worker, const char* stage) {
  if (!worker.stages.is_object()) return 0;
  return worker.stages.value(stage, Json::object()).value("bytes", int64_t{0});
}

int64_t ModelBytes(const RunResult& result, const char* from) {
  int64_t bytes = 0;
  for (const WorkerReport& worker : result.workers) {
    if (worker.model.is_object() && worker.model.value("from", std::string()) == from)
      bytes += worker.model.value("bytes", int64_t{0});
  }
  return bytes;
}

// Of the last unit that was accepted, be it the item's last or not.
double EndOf(const RunResult& result) {
  double end = result.last_publish_s.value_or(0);
  for (const WorkerReport& worker : result.workers) end = std::max(end, worker.last_s);
  return end;
}

class Together {
 public:
  explicit Together(const RunResult& result)
      : result_(result), begin_(result.first_lease_s.value_or(0)), end_(EndOf(result)) {
    // What a worker that was killed had last told of its model's time is older than its last tile.
    std::vector<double> rates, all;
    for (const WorkerReport& worker : result.workers) {
      const auto rate = RateOf(worker);
      if (rate) all.push_back(*rate);
      if (rate && Stayed(worker)) rates.push_back(*rate);
    }
    median_ = Median(rates.empty() ? std::move(all) : std::move(rates));
  }

  Json Figures() const {
    const double window = std::max(end_ - begin_, 0.0);
    double could = 0, there = 0;
    int64_t tiles = 0, read = 0, written = 0;
    std::set<std::string> names;  // one that was started again is no other
    for (const WorkerReport& worker : result_.workers) {
      names.insert(worker.id);
      could += RateOf(worker).value_or(median_) * There(worker);
      there += There(worker);
      tiles += worker.tiles;
      read += BytesOf(worker, "read");
      written += BytesOf(worker, "write");
    }
    Json efficiency, worth;
    if (could > 0) {
      efficiency = static_cast<double>(tiles) / could;
      worth = static_cast<double>(tiles) / could * there / window;
    }
    return {{"workers", names.size()},
            {"window_s", window},
            {"efficiency", std::move(efficiency)},
            {"worth", std::move(worth)},
            {"imbalance", Imbalance()},
            {"tail_s", Tail()},
            {"stragglers", Stragglers()},
            {"read_bytes", read},
            {"written_bytes", written},
            {"control_in_bytes", result_.control_in_bytes},
            {"control_out_bytes", result_.control_out_bytes},
            {"model_read_bytes", ModelBytes(result_, "file")},
            {"model_broadcast_bytes", ModelBytes(result_, "broadcast")},
            {"hosts", Hosts()}};
  }

 private:
  // Seconds within the window.
  double There(const WorkerReport& worker) const {
    const double left = worker.left_s < 0 ? end_ : std::min(worker.left_s, end_);
    return std::max(left - std::max(worker.joined_s, begin_), 0.0);
  }
  bool Stayed(const WorkerReport& worker) const {
    return worker.left_s < 0 || worker.left_s >= end_;
  }

  double Imbalance() const {
    double most = 0, all = 0;
    int count = 0;
    for (const WorkerReport& worker : result_.workers) {
      if (!Stayed(worker)) continue;
      most = std::max(most, worker.model_s);
      all += worker.model_s;
      ++count;
    }
    return all > 0 ? most * count / all - 1 : 0;
  }

  double Tail() const {
    double first = end_;
    for (const WorkerReport& worker : result_.workers)
      if (Stayed(worker) && worker.last_s >= 0) first = std::min(first, worker.last_s);
    return std::max(end_ - first, 0.0);
  }

  Json Stragglers() const {
    Json stragglers = Json::array();
    for (const WorkerReport& worker : result_.workers) {
      const auto rate = RateOf(worker);
      if (!rate || !Stayed(worker) || *rate >= kStragglerShare * median_) continue;
      stragglers.push_back({{"worker", worker.id},
                            {"host", Printable(worker.host)},
                            {"tiles_per_s", *rate},
                            {"median", median_}});
    }
    return stragglers;
  }

  Json Hosts() const {
    struct Host {
      int64_t workers = 0, tiles = 0, read = 0, written = 0;
      double model_s = 0, there_s = 0;
    };
    std::map<std::string, Host> hosts;
    for (const WorkerReport& worker : result_.workers) {
      Host& host = hosts[worker.host];
      ++host.workers;
      host.tiles += worker.tiles;
      host.read += BytesOf(worker, "read");
      host.written += BytesOf(worker, "write");
      host.model_s += worker.model_s;
      host.there_s += There(worker);
    }
    Json json = Json::array();
    for (const auto& [name, host] : hosts) {
      json.push_back({{"name", Printable(name)},
                      {"workers", host.workers},
                      {"tiles", host.tiles},
                      {"model_s", host.model_s},
                      {"there_s", host.there_s},
                      {"read_bytes", host.read},
                      {"written_bytes", host.written}});
    }
    return json;
  }

  const RunResult& result_;
  const double begin_, end_;
  double median_ = 0;
};

}  // namespace

Json TogetherJson(const RunResult& result) { return Together(result).Figures(); }

}  // namespace tilery
