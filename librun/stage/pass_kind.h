// How the passes of a stage differ for who records them. Torch-free.
#pragma once

namespace pp::run {

struct PassKind {
  bool splits = false;      ///< its backward: an input gradient, later a weight gradient
  bool sets_sums = false;   ///< its gradients are the first of the step, which others are added to
  bool runs_again = false;  ///< the whole forward, before its backward: the first one keeps no graph
  bool operator==(const PassKind&) const = default;
};

}  // namespace pp::run
