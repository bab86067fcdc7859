#include "librun/stage/recorded_passes.h"

#include <algorithm>
#include <iterator>

namespace pp::run {

RecordedPass* RecordedPasses::take(const std::shared_ptr<const model::Weights>& weights,
                                   model::TensorSpan inputs, const model::PassContext& context) {
  const std::size_t number = forwards_++;
  const std::int64_t rows = inputs.front().size(0);
  PassKind kind = kinds_[number % kinds_.size()];
  kind.sets_sums = kind.sets_sums && number < kinds_.size();  // of several mini-batches the first
  if (!warm_) rows_.insert(rows);
  if (!warm_ || kind.runs_again || !rows_.contains(rows)) return nullptr;
  ++replayed_;
  const auto free = std::ranges::find_if(
      entries_, [&](const Entry& e) { return !e.taken && e.kind == kind && e.rows == rows; });
  if (free != entries_.end()) {
    free->taken = true;
    return free->pass.get();
  }
  entries_.push_back(
      {kind, rows, true, std::make_unique<RecordedPass>(segment_, weights, inputs, context, payer_)});
  return entries_.back().pass.get();
}

void RecordedPasses::give(RecordedPass* pass) {
  std::ranges::find(entries_, pass, [](const Entry& e) { return e.pass.get(); })->taken = false;
}

void RecordedPasses::end_step() {
  warm_ = true;
  forwards_ = 0;
}

GraphCount RecordedPasses::count() const {
  GraphCount count{.recorded = std::ssize(entries_), .replayed = replayed_, .bytes = {}};
  for (const Entry& entry : entries_) count.bytes += entry.pass->bytes();
  return count;
}

}  // namespace pp::run
