#include "librun/worker/overlapped_sum.h"

#include <algorithm>
#include <utility>

namespace pp::run {

namespace {

constexpr Bytes kBucket(1 << 20);  // long beside what a message costs

}  // namespace

OverlappedSum::OverlappedSum(Collectives& collectives, std::size_t group, WorkerId me, Stage& stage)
    : collectives_(collectives), group_(group), me_(me), stage_(stage) {
  left_ = stage.buckets(kBucket);
  std::ranges::reverse(left_);
}

void OverlappedSum::begin_down_to(int layer) {
  while (!left_.empty() && left_.back().layer >= layer) {
    std::unique_ptr<PendingSum> sum =
        collectives_.begin_sum(group_, me_, stage_.complete_gradient(left_.back()));
    if (!sum) return left_.clear();
    begun_.push_back(std::move(sum));
    left_.pop_back();
  }
}

void OverlappedSum::end(int position, Phase) {
  begin_down_to(position);
  for (const auto& sum : begun_) {
    if (!sum->advance()) break;
  }
}

Seconds OverlappedSum::finish() {
  begin_down_to(0);
  if (begun_.empty()) return collectives_.sum(group_, me_, stage_.complete_gradient());
  Seconds elapsed{};
  for (const auto& sum : begun_) elapsed += sum->add();
  for (const auto& sum : begun_) sum->finish();
  return elapsed;
}

}  // namespace pp::run
