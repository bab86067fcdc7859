#include "librun/worker/overlapped_sum.h"

#include <algorithm>

#include "libplan/cost/bucket_scan.h"

namespace pp::run {

OverlappedSum::OverlappedSum(Collectives& collectives, std::size_t group, WorkerId me, Stage& stage,
                             double share)
    : collectives_(collectives),
      group_(group),
      me_(me),
      stage_(stage),
      share_(share),
      slices_(stage.gradient_slices()) {
  left_ = stage.buckets(plan::kBucket);
  std::ranges::reverse(left_);
}

void OverlappedSum::begin_down_to(int layer) {
  while (!left_.empty() && left_.back().layer >= layer) {
    const at::Tensor part = stage_.complete_gradient(left_.back());
    if (share_ != 1) part.mul_(share_);
    const FlatLayout::Bucket& bucket = left_.back();
    begun_.push_back(
        slices_.empty()
            ? collectives_.begin_sum(group_, me_, part)
            : collectives_.begin_reduce(group_, me_, part, slices_within(slices_, bucket.begin, bucket.end)));
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
  Seconds elapsed{};
  for (const auto& sum : begun_) sum->add();
  for (const auto& sum : begun_) sum->finish();
  for (const auto& sum : begun_) elapsed += sum->spent();
  return elapsed;
}

}  // namespace pp::run
