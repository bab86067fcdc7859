// Which process has which workers. Free of Torch.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"

namespace pp::run {

struct Placement {
  int rank = 0;  ///< of this process
  int ranks = 1;
  std::vector<int> rank_of{};   ///< per worker; empty: all are here
  std::vector<bool> on_host{};  ///< per rank: on this host
  std::vector<bool> beside{};   ///< per rank: there with the same cores, so that they share these
  std::vector<int> host_of{};   ///< per rank; hosts count from 0, by their first ranks; empty: there is one

  bool alone() const { return ranks == 1; }
  int of(WorkerId worker) const { return rank_of.empty() ? rank : rank_of[index(worker)]; }
  bool here(WorkerId worker) const { return of(worker) == rank; }
  bool shares_memory(WorkerId worker) const { return alone() || on_host[static_cast<std::size_t>(of(worker))]; }
  /// Of this host.
  int processes() const { return alone() ? 1 : static_cast<int>(std::ranges::count(on_host, true)); }
  int hosts() const { return host_of.empty() ? 1 : std::ranges::max(host_of) + 1; }
  int host() const { return host_of.empty() ? 0 : host_of[static_cast<std::size_t>(rank)]; }
  /// Of a host, ascending.
  std::vector<int> ranks_on(int host) const;
};

/// Where a rank is: machines made from one image may have one name.
struct HostIdentity {
  std::string name, boot;
};
/// Per rank the name of its host, with a number (`node#2`) where an earlier rank is on another one of that
/// name.
std::vector<std::string> names_of_hosts(const std::vector<HostIdentity>& ranks);

/// How many ranks the plan names; 0 where it leaves one in between without workers.
int ranks_named(const plan::Plan& plan);

/// The plan's ranks where it names as many, else contiguous blocks of workers, the first ranks with one more.
/// Throws pp::Error (usage), with the command that fits, for more ranks than workers.
Placement place_workers(const plan::Plan& plan, int rank, int ranks);

/// A warning where the plan names several ranks and this is the only one; else empty.
std::string missing_ranks(const plan::Plan& plan);

/// `4 workers on 2 ranks: 0-1, 2-3`, and why not as the plan has it.
std::string placement_text(const plan::Plan& plan, const Placement& placement);

}  // namespace pp::run
