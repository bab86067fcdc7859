// What differs while passes are compared with another program's: draws, which no two programs share, and
// gradients of evaluation, which training never needs.
#pragma once

#include <cstdint>
#include <vector>

namespace pp::model {

/// While one lives, passes of the calling thread
/// - keep everything where they would drop elements, which leaves the factor 1/(1-p): it shows where a dropout
///   stands, and its p;
/// - record graphs in evaluation, too, so that backward can follow. It is autograd's: batch norm takes its
///   running statistics, so each sample has the gradient that it has alone.
/// Not nested.
class Comparison {
 public:
  Comparison() { here_ = this; }
  ~Comparison() { here_ = nullptr; }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// The calling thread's; null: it trains.
  static Comparison* here() { return here_; }

  /// Elements that a mask would have been drawn for.
  void drew(std::int64_t elements) { masks_.push_back(elements); }
  /// Their numbers, draw by draw in order.
  const std::vector<std::int64_t>& masks() const { return masks_; }

 private:
  static inline thread_local Comparison* here_ = nullptr;
  std::vector<std::int64_t> masks_;
};

}  // namespace pp::model
