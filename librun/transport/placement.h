// Which process has which workers. Free of Torch.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "libplan/plan.h"

namespace pp::run {

struct Placement {
  int rank = 0;  ///< of this process
  int ranks = 1;
  std::vector<int> rank_of{};   ///< per worker; empty: all are here
  std::vector<bool> on_host{};  ///< per rank: on this host
  std::vector<bool> beside{};   ///< per rank: there with the same cores, so that they share these

  bool alone() const { return ranks == 1; }
  int of(WorkerId worker) const { return rank_of.empty() ? rank : rank_of[index(worker)]; }
  bool here(WorkerId worker) const { return of(worker) == rank; }
  bool shares_memory(WorkerId worker) const { return alone() || on_host[static_cast<std::size_t>(of(worker))]; }
  /// Of this host.
  int processes() const { return alone() ? 1 : static_cast<int>(std::ranges::count(on_host, true)); }
};

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
