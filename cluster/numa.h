// Which CPUs each worker of one host has: those of one NUMA node, near its GPU if it has one.
//
// A worker that is bound to a node's CPUs has its memory there too, since Linux takes a page from
// the node of the thread that first touches it; so nothing binds memory itself. What a process may
// not use, by its affinity (Slurm, taskset) or control group, is given to no worker.
//
//   node 0, near cuda:0 and cuda:1: 0-7     ->  w0: 0-3   w1: 4-7
//   node 1, near cuda:2:            8-15    ->  w2: 8-15
//
// Functions of their arguments alone, but for UsableCpuList(). Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tilery {

using CpuSet = std::vector<int>;  // numbers of CPUs, ascending

// CPUs this process may use; empty if the kernel does not say.
CpuSet UsableCpuList();

// "0-3,8-11", as the kernel writes it, and back; what is no such list is empty.
std::string ToText(const CpuSet& cpus);
CpuSet CpuSetFrom(const std::string& text);

struct NumaNode {
  int number = 0;
  std::vector<int> cpus;  // usable ones; those of one core lie beside each other
};

// Nodes with at least one of the CPUs of `usable`, by number. `sysfs`: "/sys", but for tests.
// Empty, and so nobody is bound, if there are fewer than two, or if they leave out a usable CPU.
std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& sysfs, const CpuSet& usable);

inline constexpr int kNoNode = -1;   // of a device: not known
inline constexpr int kAnyNode = -2;  // of a worker on CPUs: wherever there is room

// The node of the device at this PCI address ("0000:17:00.0"), or kNoNode.
int NumaNodeOf(const std::filesystem::path& sysfs, const std::string& pci);

struct CpuShare {
  CpuSet cpus;      // empty: not bound
  int threads = 0;  // CPUs that are its own, at least 1 where it is bound
};

// The share of each worker, of which `near` has the nodes. Workers of one node share out its CPUs
// without overlap; if they are more than its CPUs, each may use all of the node. Fewer workers on
// CPUs than nodes have several nodes each; more are spread so that each has about as many CPUs, and
// no node is without one. What is left of a host whose GPUs are all near some of its nodes is
// shared out among all workers, if these are `all` of the host: to encode needs cores more than
// nearness. Not bound: a worker whose node is not known or has no usable CPU, and all if there are
// fewer than two nodes.
std::vector<CpuShare> ShareCpus(const std::vector<NumaNode>& nodes, const std::vector<int>& near,
                                bool all = true);

// Binds this process, or rather its first thread and all that it starts from now on. 0, or errno.
int BindTo(const CpuSet& cpus);

}  // namespace tilery
