#include "libprofile/estimate/token_choice.h"

#include <algorithm>
#include <cmath>

namespace pp::profile {
namespace {

/// The share of all choices of k among `all` that lie among `some` of them.
double share_within(double some, double all, double k) {
  double share = 1;
  for (int i = 0; i < k; ++i) share *= std::max(0.0, some - i) / (all - i);
  return share;
}

/// Choices of k among n.
double choices(double n, double k) {
  double count = k <= n ? 1 : 0;
  for (int i = 0; i < k; ++i) count *= (n - i) / (i + 1);
  return count;
}

}  // namespace

double nodes_of_token(const TokenChoice& choice, int nodes) {
  const double n = nodes, here = choice.experts / n;
  const bool divides = std::fmod(choice.groups, n) == 0, divided = std::fmod(n, choice.groups) == 0;
  if (!divides && !divided) return nodes_of_token({choice.experts, choice.per_token}, nodes);
  const double each = choice.experts / choice.groups, open = each * choice.open_groups, k = choice.per_token;
  if (divided) return n * choice.open_groups / choice.groups * (1 - share_within(open - here, open, k));
  double missed = 0;  // by how many of its groups are open
  const double own = choice.groups / n;
  for (int j = 0; j <= own && j <= choice.open_groups; ++j)
    missed += choices(own, j) * choices(choice.groups - own, choice.open_groups - j) *
              share_within(open - j * each, open, k);
  return n * (1 - missed / choices(choice.groups, choice.open_groups));
}

}  // namespace pp::profile
