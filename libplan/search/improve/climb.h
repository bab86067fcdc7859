// Local moves on a priced finalist: changes are tried in a fixed order and taken when they rank before it,
// until none helps or the operations that may be simulated are used up. What is changed is said by passes, how
// a change is priced by whoever starts the climb.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

class Climb {
 public:
  /// Prices `other`, as far as it takes to see whether it ranks before `best`, and counts the operations down.
  using Price = std::function<bool(Finalist& other, const Finalist& best, std::int64_t& operations)>;

  /// Both must outlive it.
  Climb(Finalist& best, std::int64_t& operations, Price price)
      : best_(best), operations_(operations), price_(std::move(price)) {}

  const Finalist& best() const { return best_; }
  /// Takes `other` if it ranks before the best.
  bool attempt(Finalist other) {
    if (operations_ <= 0 || !price_(other, best_, operations_)) return false;
    best_ = std::move(other);
    return true;
  }

 private:
  Finalist& best_;
  std::int64_t& operations_;
  Price price_;
};

/// Tries a neighbourhood of the best; whether anything was taken.
using Pass = std::function<bool(Climb&)>;

/// Pass by pass; one that has taken something sends the climb back to the first.
inline void run(Climb& climb, std::span<const Pass> passes) {
  for (std::size_t next = 0; next < passes.size();) next = passes[next](climb) ? 0 : next + 1;
}

}  // namespace pp::plan
