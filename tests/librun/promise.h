// What a valid plan promises of its weights.
#pragma once

#include "libplan/plan/plan.h"

namespace pp::test {

/// bits: those of one device; reversed: those of one that adds the last micro-batch's gradients first;
/// rounding: the same sums in another order; stream: those of its recursion; unknown: a stream for which there
/// is no reference.
enum class Promise { bits, reversed, rounding, stream, unknown };

/// `plan` must be valid.
Promise promise_of(const pp::plan::Plan& plan);

}  // namespace pp::test
