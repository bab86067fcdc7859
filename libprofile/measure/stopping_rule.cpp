#include "libprofile/measure/stopping_rule.h"

#include "libprofile/measure/statistics.h"

namespace pp::profile {

Verdict decide(const StoppingRule& rule, std::span<const double> samples, Seconds spent) {
  const int count = static_cast<int>(samples.size());
  if (count < kFewestSamples) return Verdict::more;
  if (count >= rule.max_samples) return Verdict::enough;
  if (count >= rule.min_samples && relative_half_width(samples) <= rule.precision) return Verdict::precise;
  return spent >= rule.budget ? Verdict::budget_spent : Verdict::more;
}

}  // namespace pp::profile
