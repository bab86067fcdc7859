// Values by micro-batch, few at a time, in memory that is used again. Free of Torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"

namespace pp::run {

/// Looking up walks over those in flight. Allocates only when more are in flight than ever before.
template <class Value>
class Flights {
 public:
  /// Replaces what the micro-batch had.
  void put(int micro_batch, Value value) {
    erase(micro_batch);
    values_.emplace_back(micro_batch, std::move(value));
  }
  /// Throws pp::Error (internal) for a micro-batch that is not in flight.
  Value& at(int micro_batch) { return values_[place(micro_batch)].second; }
  const Value& at(int micro_batch) const { return values_[place(micro_batch)].second; }
  /// Nothing happens to a micro-batch that is not in flight.
  void erase(int micro_batch) {
    std::erase_if(values_, [&](const auto& entry) { return entry.first == micro_batch; });
  }
  std::size_t size() const { return values_.size(); }

 private:
  std::size_t place(int micro_batch) const {
    const auto found = std::ranges::find(values_, micro_batch, &std::pair<int, Value>::first);
    if (found != values_.end()) return static_cast<std::size_t>(found - values_.begin());
    throw Error(ErrorKind::internal, "micro-batch " + std::to_string(micro_batch) + " is not in flight");
  }

  std::vector<std::pair<int, Value>> values_;
};

}  // namespace pp::run
