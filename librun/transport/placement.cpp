#include "librun/transport/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"

namespace pp::run {

std::vector<int> Placement::ranks_on(int host) const {
  std::vector<int> found;
  for (int other = 0; other < ranks; ++other)
    if (host_of.empty() || host_of[static_cast<std::size_t>(other)] == host) found.push_back(other);
  return found;
}

std::vector<std::string> names_of_hosts(const std::vector<HostIdentity>& ranks) {
  std::map<std::string, std::vector<std::string>> boots;  // by name
  std::vector<std::string> names;
  for (const auto& [name, boot] : ranks) {
    std::vector<std::string>& known = boots[name];
    const auto at = std::ranges::find(known, boot) - known.begin();
    if (at == std::ssize(known)) known.push_back(boot);
    names.push_back(at == 0 ? name : name + '#' + std::to_string(at + 1));
  }
  return names;
}

int ranks_named(const plan::Plan& plan) {
  std::set<int> named;
  for (const plan::Worker& worker : plan.workers) named.insert(worker.rank);
  return *named.begin() == 0 && *named.rbegin() + 1 == std::ssize(named) ? static_cast<int>(named.size()) : 0;
}

Placement place_workers(const plan::Plan& plan, int rank, int ranks) {
  const int workers = static_cast<int>(plan.workers.size());
  if (ranks > workers) {
    throw Error(ErrorKind::usage, counted(ranks, "rank") + " for " + counted(workers, "worker") +
                                      " of the plan; start at most " + std::to_string(workers) +
                                      ": mpirun -n " + std::to_string(workers) + " pp-run ...");
  }
  Placement placement;
  placement.rank = rank;
  placement.ranks = ranks;
  placement.beside.resize(static_cast<std::size_t>(ranks));
  placement.on_host.resize(static_cast<std::size_t>(ranks));
  if (placement.alone()) return placement;
  const bool named = ranks_named(plan) == ranks;
  const int each = workers / ranks, more = workers % ranks;
  for (int w = 0; w < workers; ++w) {
    const int in_first = more * (each + 1);
    const int block = w < in_first ? w / (each + 1) : more + (w - in_first) / each;
    placement.rank_of.push_back(named ? plan.workers[static_cast<std::size_t>(w)].rank : block);
  }
  return placement;
}

std::string missing_ranks(const plan::Plan& plan) {
  const int named = ranks_named(plan);
  if (named < 2) return "";
  return "the plan is for " + std::to_string(named) +
         " ranks and this process has all their workers; start it with mpirun -n " + std::to_string(named) +
         " pp-run ...";
}

std::string placement_text(const plan::Plan& plan, const Placement& placement) {
  std::string text = counted(std::ssize(plan.workers), "worker") + " on " + counted(placement.ranks, "rank");
  for (int rank = 0; rank < placement.ranks; ++rank) {
    std::string here;
    for (const plan::Worker& worker : plan.workers) {
      if (placement.of(worker.id) == rank)
        here.append(here.empty() ? "" : " ").append(std::to_string(number(worker.id)));
    }
    text.append(rank == 0 ? ": " : ", ").append(here);
  }
  const int named = ranks_named(plan);
  if (named == placement.ranks) return text + ", as in the plan";
  return text + ", in contiguous blocks" +
         (named > 1 ? "; the plan's own ranks need mpirun -n " + std::to_string(named) : "");
}

}  // namespace pp::run
