// The exact bisection over probes: the least limit under which something exists, bit for bit, when the loads
// that decide form a finite set.
#pragma once

#include <utility>

#include "libplan/cost/constants.h"

namespace pp::plan {

/// A probe's answer has `feasible()`, `value` (what it really reaches, at most the limit) and `next` (the
/// smallest load that was refused: below it nothing exists). `lower_bound` must hold; 0 always does. `probes`
/// counts them. Not feasible: nothing exists under any limit.
template <class Test, class Probe>
Test bisect(const Probe& probe, double lower_bound, int& probes) {
  // Upwards from the bound, in steps that double: a probe is the dearer the more it admits.
  constexpr double kFirstStep = 1. / 64;
  double low = lower_bound;
  double limit = lower_bound > 0 ? lower_bound : kInfinity;
  Test best = probe(limit);
  probes = 1;
  for (double step = kFirstStep; !best.feasible(); step *= 2, ++probes) {
    if (best.next == kInfinity || limit == kInfinity) return best;  // no load was refused
    low = best.next;
    limit = low * (1 + step);
    best = probe(limit);
  }
  bool first = probes == 1;
  while (low < best.value) {
    double middle = first ? low : low + (best.value - low) / 2;
    first = false;
    if (middle >= best.value) middle = low;  // no double lies between them
    Test test = probe(middle);
    ++probes;
    if (test.feasible()) {
      best = std::move(test);
    } else {
      low = test.next;
    }
  }
  Test last = probe(best.value);  // what a probe prefers among equals
  ++probes;
  return last.feasible() ? std::move(last) : std::move(best);
}

}  // namespace pp::plan
