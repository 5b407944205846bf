#include "cluster/numa.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "cluster/sysfs.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 1 << 16;  // more than any kernel has been built for

// A set of the kernel's for CPUs below `size`: cpu_set_t ends at 1,024.
class KernelSet {
 public:
  explicit KernelSet(int size)
      : size_(size), set_(CPU_ALLOC(static_cast<size_t>(size)), [](cpu_set_t* s) { CPU_FREE(s); }) {
    CPU_ZERO_S(bytes(), get());
  }
  cpu_set_t* get() const { return set_.get(); }
  size_t bytes() const { return CPU_ALLOC_SIZE(static_cast<size_t>(size_)); }

 private:
  const int size_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

// Cores in order, each with its hyperthreads: cut into pieces, few cores have two workers.
void OrderByCore(const fs::path& cpus, std::vector<int>& node) {
  std::map<int, int> core;  // CPU -> the first one of its core
  for (const int cpu : node) {
    const CpuSet siblings = CpuSetFrom(
        FirstLine(cpus / ("cpu" + std::to_string(cpu)) / "topology" / "thread_siblings_list"));
    core[cpu] = siblings.empty() ? cpu : siblings.front();
  }
  std::stable_sort(node.begin(), node.end(), [&](int a, int b) { return core[a] < core[b]; });
}

using Workers = std::vector<size_t>;  // places in `near`

// Gives the workers their pieces of `pool`.
void ShareOut(const std::vector<int>& pool, const Workers& workers, std::vector<CpuShare>& shares) {
  const size_t count = workers.size();
  for (size_t k = 0; k < count; ++k) {
    CpuShare& share = shares[workers[k]];
    if (pool.size() < count) {
      share = {pool, 1};
    } else {
      const auto at = [&](size_t piece) {
        return pool.begin() + static_cast<std::ptrdiff_t>(pool.size() * piece / count);
      };
      share.cpus.assign(at(k), at(k + 1));
      share.threads = static_cast<int>(share.cpus.size());
    }
    std::sort(share.cpus.begin(), share.cpus.end());
  }
}

// Adds a piece of `left` to every share that there is.
void Lend(const std::vector<int>& left, std::vector<CpuShare>& shares) {
  Workers bound;
  for (size_t k = 0; k < shares.size(); ++k)
    if (!shares[k].cpus.empty()) bound.push_back(k);
  if (left.size() < bound.size()) return;
  std::vector<CpuShare> more(shares.size());
  ShareOut(left, bound, more);
  for (const size_t k : bound) {
    CpuSet& cpus = shares[k].cpus;
    cpus.insert(cpus.end(), more[k].cpus.begin(), more[k].cpus.end());
    std::sort(cpus.begin(), cpus.end());
    shares[k].threads += more[k].threads;
  }
}

// Whole nodes for each, in order.
void ShareNodes(const std::vector<NumaNode>& nodes, const Workers& workers,
                std::vector<CpuShare>& shares) {
  for (size_t k = 0; k < workers.size(); ++k) {
    std::vector<int> pool;
    for (size_t n = nodes.size() * k / workers.size(); n < nodes.size() * (k + 1) / workers.size();
         ++n)
      pool.insert(pool.end(), nodes[n].cpus.begin(), nodes[n].cpus.end());
    ShareOut(pool, {workers[k]}, shares);
  }
}

// Workers on CPUs: one for each node, and each further one where there are most CPUs for a worker.
void Spread(const std::vector<NumaNode>& nodes, const Workers& workers,
            std::vector<CpuShare>& shares) {
  if (workers.size() < nodes.size()) return ShareNodes(nodes, workers, shares);
  std::vector<Workers> on(nodes.size());
  for (size_t k = 0; k < workers.size(); ++k) {
    size_t best = k;
    if (k >= nodes.size()) {
      const auto room = [&](size_t n) {
        return static_cast<double>(nodes[n].cpus.size()) / static_cast<double>(on[n].size() + 1);
      };
      best = 0;
      for (size_t n = 1; n < nodes.size(); ++n)
        if (room(n) > room(best)) best = n;
    }
    on[best].push_back(workers[k]);
  }
  for (size_t n = 0; n < nodes.size(); ++n) ShareOut(nodes[n].cpus, on[n], shares);
}

}  // namespace

CpuSet UsableCpuList() {
  // The kernel refuses a set that is smaller than its own.
  for (int size = 1024; size <= kMostCpus; size *= 4) {
    const KernelSet set(size);
    if (sched_getaffinity(0, set.bytes(), set.get()) != 0) continue;
    CpuSet cpus;
    for (int cpu = 0; cpu < size; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), set.bytes(), set.get())) cpus.push_back(cpu);
    return cpus;
  }
  return {};
}

std::string ToText(const CpuSet& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

CpuSet CpuSetFrom(const std::string& text) {
  CpuSet cpus;
  const std::string_view all(text);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    const std::string_view range = all.substr(begin, end - begin);
    const size_t dash = range.find('-');
    const std::optional<int> first = WholeNumber(range.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : WholeNumber(range.substr(dash + 1));
    if (!first || !last || *last >= kMostCpus) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    begin = end + 1;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<NumaNode> ReadNumaNodes(const fs::path& sysfs, const CpuSet& usable) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  size_t covered = 0;
  for (const auto& entry : fs::directory_iterator(sysfs / "devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const std::optional<int> number = WholeNumber(std::string_view(name).substr(4));
    if (!number) continue;
    NumaNode node{*number, {}};
    // Nodes may have memory alone.
    const CpuSet all = CpuSetFrom(FirstLine(entry.path() / "cpulist"));
    std::set_intersection(all.begin(), all.end(), usable.begin(), usable.end(),
                          std::back_inserter(node.cpus));
    if (node.cpus.empty()) continue;
    covered += node.cpus.size();
    OrderByCore(sysfs / "devices/system/cpu", node.cpus);
    nodes.push_back(std::move(node));
  }
  if (nodes.size() < 2 || covered != usable.size()) return {};
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
}

int NumaNodeOf(const fs::path& sysfs, const std::string& pci) {
  if (pci.empty()) return kNoNode;
  return WholeNumber(FirstLine(sysfs / "bus/pci/devices" / pci / "numa_node")).value_or(kNoNode);
}

std::vector<CpuShare> ShareCpus(const std::vector<NumaNode>& nodes, const std::vector<int>& near,
                                bool all) {
  std::vector<CpuShare> shares(near.size());
  if (nodes.size() < 2) return shares;
  const auto all_on = [&](int node) {
    Workers workers;
    for (size_t k = 0; k < near.size(); ++k)
      if (near[k] == node) workers.push_back(k);
    return workers;
  };
  for (const NumaNode& node : nodes) ShareOut(node.cpus, all_on(node.number), shares);
  if (const Workers workers = all_on(kAnyNode); !workers.empty()) {
    Spread(nodes, workers, shares);
  } else if (all && all_on(kNoNode).empty()) {
    std::vector<int> left;
    for (const NumaNode& node : nodes)
      if (all_on(node.number).empty()) left.insert(left.end(), node.cpus.begin(), node.cpus.end());
    Lend(left, shares);
  }
  return shares;
}

int BindTo(const CpuSet& cpus) {
  if (cpus.empty() || cpus.front() < 0 || cpus.back() >= kMostCpus) return EINVAL;
  const KernelSet set(cpus.back() + 1);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), set.bytes(), set.get());
  return sched_setaffinity(0, set.bytes(), set.get()) == 0 ? 0 : errno;
}

}  // namespace tilery
