// What a valid plan promises of its weights.
#pragma once

#include "libplan/plan.h"

namespace pp::fuzz {

/// bits: those of one device; rounding: the same sums in another order; stream: those of its recursion;
/// unknown: a stream for which there is no reference.
enum class Promise { bits, rounding, stream, unknown };

/// `plan` must be valid.
Promise promise_of(const plan::Plan& plan);

/// Whether training it takes a moment and a few megabytes.
bool is_small(const plan::Plan& plan);

}  // namespace pp::fuzz
