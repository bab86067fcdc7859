// Where the experts of a token are, when experts are divided over nodes.
#pragma once

namespace pp::profile {

/// Nodes that hold one or more of a token's experts, in the mean: `per_token` different ones, all choices as
/// likely, of so many of the `groups` that experts are in. Nodes have equally many experts in their order;
/// where neither nodes nor groups are parts of the other, groups do not count. O(groups).
struct TokenChoice {
  double experts = 1, per_token = 1, groups = 1, open_groups = 1;
};
double nodes_of_token(const TokenChoice& choice, int nodes);

}  // namespace pp::profile
