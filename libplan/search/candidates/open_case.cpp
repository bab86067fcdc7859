#include "libplan/search/candidates/open_case.h"

#include <algorithm>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/search/candidates/chain_case.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostSets = 4096;  ///< of a lattice

/// Whether the request leaves the layers free, and they have more than one linear order.
bool has_free_order(const PlanGraph& graph, const PlanRequest& request) {
  if (!request.cuts.empty() || !request.layer_order.empty()) return false;
  for (int l = 1; l < graph.size(); ++l) {
    if (std::ranges::count(graph.layers[at(l)].producers, l - 1) == 0) return true;
  }
  return false;
}

}  // namespace

MachinePart::MachinePart(const Cluster& some, const PlanGraph& model, const PlanRequest& asked, bool all)
    : cluster(some),
      graph(model),
      request(asked),
      lists(cluster, request),
      whole(all),
      free_order(has_free_order(graph, request)) {
  if (free_order && whole && equal_memories(cluster, request)) lattice = make_lattice(graph, kMostSets);
}

void MachinePart::for_each_case(const Profile& profile, const std::function<void(const PlanCase&)>& visit) {
  const auto see = [&](const PlanCase& one) {
    if (first_order.empty()) first_order = one.order.layers;
    visit(one);
  };
  pp::plan::for_each_case(profile, cluster, graph, request, see, lattice ? &*lattice : nullptr);
}

std::vector<std::unique_ptr<OpenCase>> open_cases(MachinePart& part, PlanCase one) {
  std::vector<std::unique_ptr<OpenCase>> cases;
  if (!places_stages(one.schedule)) {
    cases.push_back(std::make_unique<ChainCase>(part, std::move(one)));
    return cases;
  }
  const auto shared = std::make_shared<const PlanCase>(std::move(one));
  const bool first = shared->order.layers == part.first_order;
  for (const PlacedVariant& variant : placed_variants(*shared, part.request, first))
    cases.push_back(std::make_unique<PlacedCase>(part, shared, variant));
  return cases;
}

double least_bound(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, double enough) {
  MachinePart part(cluster, graph, request, true);
  double least = kInfinity;
  part.for_each_case(profile, [&](const PlanCase& one) {
    for (const std::unique_ptr<OpenCase>& open : open_cases(part, one)) {
      while (open->bound() < std::min(least, enough) && open->refine(std::min(least, enough))) {
      }
      open->prove(std::min(least, enough));
      least = std::min(least, open->proven());
    }
  });
  return least;
}

}  // namespace pp::plan
