#include "libplan/search/certificate.h"

#include <algorithm>
#include <span>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {
namespace {

using pp::to_text;

std::string count_text(int n, const std::string& one, const std::string& many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string left_out_text(std::span<const std::string_view> schedules, const std::string& why) {
  std::string names;
  for (const std::string_view name : schedules) names.append(names.empty() ? "" : ", ").append(name);
  return names.empty() ? "" : "; left out: " + names + ", " + why;
}

/// Nothing, or which schedules were not tried and why.
std::string left_out_text(const SearchOutcome& outcome) {
  return left_out_text(outcome.left_out, "the profile only estimates how the backward splits") +
         left_out_text(outcome.unpriced, "the profile has no times for micro-batches they would take");
}

/// A bound above the step of a plan is wrong; cutting it off would make it a proof.
void require_bound(double bound, double objective) {
  constexpr double kRounding = 1e-9;  // relative; of sums in another order
  if (bound <= objective * (1 + kRounding)) return;
  throw Error(ErrorKind::internal, "certificate: the lower bound of " + to_text(Seconds(bound)) +
                                       " is above the step of " + to_text(Seconds(objective)) +
                                       " of a plan; please report the command and its profile");
}

std::string_view text_of(Origin origin) {
  switch (origin) {
    case Origin::points: return "the objective";
    case Origin::least_bound: return "the bound";
    case Origin::data_parallel: return "data parallelism";
    case Origin::even_stages: return "stages of equal times";
    case Origin::straight: return "pipelines without replicas";
    case Origin::anything: return "a search for whatever fits";
    case Origin::less_memory: return "a search within less memory";
    case Origin::near_optima: return "a look at what is near the best objective";
    case Origin::device_list: return "a search over a list of the devices";
  }
  return {};
}

/// `exact over` only where every partition of the searched layer orders was looked at.
std::string searched_text(const SearchOutcome& outcome) {
  const int flat = outcome.schedules - outcome.placed_schedules;
  std::string text = outcome.equal_replicas ? "searched pipelines of equal replicas over "
                     : flat > 0 && outcome.exact && !outcome.cut_short ? "exact over "
                                                                       : "searched ";
  text += count_text(outcome.orders, "layer order", "layer orders") + ", " +
          count_text(outcome.batches, "micro-batch count", "micro-batch counts") + " and ";
  if (flat > 0) text += count_text(flat, "schedule", "schedules");
  if (outcome.placed_schedules > 0) {
    text += (flat > 0 ? ", not exactly over " : "") + count_text(outcome.placed_schedules,
                                                                 "schedule that places its stages",
                                                                 "schedules that place their stages");
  }
  return text;
}

}  // namespace

Certificate certify(const SearchOutcome& outcome) {
  Certificate certificate;
  certificate.objective = outcome.ranked.front().prediction.step;
  require_bound(outcome.bound, certificate.objective.count());
  certificate.lower_bound = std::min(Seconds(outcome.bound), certificate.objective);  // rounding
  if (certificate.lower_bound.count() > 0)
    certificate.gap = std::min(kMostNumber, certificate.objective / certificate.lower_bound - 1);
  certificate.search = searched_text(outcome) + "; " +
                       count_text(outcome.candidates, "candidate", "candidates") + ", " +
                       std::to_string(outcome.ranked.size()) + " simulated";
  if (outcome.improved > 0)
    certificate.search += ", " + std::to_string(outcome.improved) + " improved by local moves";
  const Finalist& best = outcome.ranked.front();
  certificate.search += "; the plan was found by " + std::string(text_of(best.origin));
  if (best.improved) certificate.search += ", improved";
  if (!outcome.bound_holds.empty()) certificate.search += "; the bound is over " + outcome.bound_holds;
  certificate.search += left_out_text(outcome);
  if (outcome.cut_short)
    certificate.search += "; cut short by the time limit: the best of what was searched until then";
  return certificate;
}

}  // namespace pp::plan
