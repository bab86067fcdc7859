#include "librun/stage/weight_versions.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

int delay_of(plan::WeightPolicy policy, int stages) {
  switch (policy) {
    case plan::WeightPolicy::vertical_sync: return stages - 1;
    case plan::WeightPolicy::two_buffered: return 1;
    case plan::WeightPolicy::flush:
    case plan::WeightPolicy::stash:
    case plan::WeightPolicy::macrobatch:
    case plan::WeightPolicy::latest:
    case plan::WeightPolicy::predict:
    case plan::WeightPolicy::server:
    case plan::WeightPolicy::downpour:
    case plan::WeightPolicy::ssp:
    case plan::WeightPolicy::hogwild: return 0;
  }
  return 0;
}

}  // namespace

WeightVersions::WeightVersions(const FlatLayout& layout, FlatLayout::Buffers first, plan::WeightPolicy policy,
                               int stages, int stage, int per_update)
    : layout_(layout), policy_(policy), frozen_(std::move(first.frozen)), delay_(delay_of(policy, stages)) {
  for (const FlatLayout::Parameter& parameter : layout.frozen())
    frozen_parameters_.push_back(FlatLayout::view(frozen_, parameter, parameter.offset()));
  all_.push_back(std::make_shared<Version>());
  refer_to(*all_.back(), std::move(first.trained));
  kept_.push_back(all_.back());
  if (policy == plan::WeightPolicy::predict) look_ahead_ = plan::look_ahead(stage, stages, per_update);
  if (look_ahead_ == plan::LookAhead{}) return;
  predicted_ = unused();
  if (per_update > 1) shared_ = unused();
}

std::span<const at::Tensor> WeightVersions::predicted() const {
  if (!predicted_) return {};
  return predicted_->parameters;
}

std::span<const at::Tensor> WeightVersions::shared() const {
  if (!shared_) return {};
  return shared_->parameters;
}

void WeightVersions::run_on_shared() {
  if (predicted_->flat.defined()) predicted_->flat.copy_(shared_->flat);
}

void WeightVersions::refer_to(Version& version, at::Tensor flat) const {
  version.flat = std::move(flat);
  version.leaves = layout_.leaves({version.flat, frozen_});
  for (const FlatLayout::Parameter& parameter : layout_.parameters())
    version.parameters.push_back(FlatLayout::view(version.flat, parameter, parameter.offset()));
}

void WeightVersions::restart() {
  drop_below(version());
  base_ = version();
  last_forward_ = 0;
}

int WeightVersions::wanted(std::int64_t step) const {
  if (delay_ == 0) return version();
  return base_ + static_cast<int>(std::max<std::int64_t>(0, step - delay_));
}

std::shared_ptr<const model::Weights> WeightVersions::for_forward(std::int64_t step) {
  last_forward_ = step;
  if (predicted_) {
    predicted_->leaves.version = version();
    return {predicted_, &predicted_->leaves};
  }
  const int wanted = this->wanted(step);
  drop_below(wanted);
  const std::shared_ptr<Version>& oldest = kept_.front();
  if (oldest->leaves.version != wanted) {
    throw Error(ErrorKind::internal, "a forward wants version " + std::to_string(wanted) + " of " +
                                         std::to_string(oldest->leaves.version) + " to " +
                                         std::to_string(version()));
  }
  return {oldest, &oldest->leaves};
}

// What no later forward takes is dropped before the next version is made, so that its buffer can be used.
WeightVersions::Update WeightVersions::begin_update(std::int64_t step) {
  if (delay_ > 0) drop_below(std::min(version(), std::max(wanted(last_forward_), wanted(step + 1))));
  const bool in_place = policy_ == plan::WeightPolicy::latest || (delay_ == 0 && !held(kept_.back()));
  std::span<const at::Tensor> before;
  if (!in_place) {
    before = newest_parameters();
    const std::shared_ptr<Version> next = unused();
    next->leaves.version = version();
    kept_.push_back(next);
    if (delay_ == 0) kept_.pop_front();
  }
  ++kept_.back()->leaves.version;
  return {newest_parameters(), before};
}

std::shared_ptr<const model::Weights> WeightVersions::newest_shared() const {
  return {kept_.back(), &kept_.back()->leaves};
}

void WeightVersions::drop_below(int version) {
  while (kept_.size() > 1 && kept_.front()->leaves.version < version) kept_.pop_front();
}

// `all_` has one handle, `kept_` another.
bool WeightVersions::held(const std::shared_ptr<Version>& version) const {
  const bool kept = std::ranges::find(kept_, version) != kept_.end();
  return version.use_count() > (kept ? 2 : 1);
}

std::shared_ptr<WeightVersions::Version> WeightVersions::unused() {
  for (const std::shared_ptr<Version>& version : all_) {
    if (version.use_count() == 1) return version;
  }
  all_.push_back(std::make_shared<Version>());
  refer_to(*all_.back(), newest_flat().defined() ? at::zeros_like(newest_flat()) : at::Tensor());
  return all_.back();
}

int WeightVersions::count() const {
  return static_cast<int>(std::ranges::count_if(all_, [](const auto& v) { return v.use_count() > 1; }));
}

Bytes WeightVersions::bytes_of_one() const {
  return Bytes(newest_flat().defined() ? static_cast<std::int64_t>(newest_flat().nbytes()) : 0);
}

}  // namespace pp::run
