#include "librun/server/weight_store.h"

#include <iterator>
#include <utility>

namespace pp::run {

void DownpourStore::fetch(int /*replica*/, const at::Tensor& into) const { into.copy_(weights_.flat); }

void DownpourStore::push(int /*replica*/, Step /*clock*/, const FlatTensors& gradient, double rate) {
  optimizer_->step(weights_.parameters, gradient.parameters, rate);
}

void HogwildStore::fetch(int /*replica*/, const at::Tensor& into) const { into.copy_(weights_.flat); }

void HogwildStore::push(int replica, Step /*clock*/, const FlatTensors& gradient, double rate) {
  optimizers_[static_cast<std::size_t>(replica)]->step(weights_.parameters, gradient.parameters, rate);
}

void ClockedStore::fetch(int replica, const at::Tensor& into) const {
  into.copy_(weights_.flat);
  if (apply_ == Apply::sum || pending_.empty()) return;
  const FlatTensors seen = with_places(into, weights_);
  for (const auto& [clock, updates] : pending_) {
    const auto own = updates.find(replica);
    if (own == updates.end()) continue;
    optimizer_->step(seen.parameters, own->second.gradient.parameters, own->second.rate);
  }
}

void ClockedStore::push(int replica, Step clock, const FlatTensors& gradient, double rate) {
  pending_[clock].emplace(replica, Update{with_places(gradient.flat.clone(), gradient), rate});
}

void ClockedStore::complete(Step clock) {
  while (!pending_.empty() && pending_.begin()->first < clock) {
    Updates& updates = pending_.begin()->second;
    if (apply_ == Apply::sum) {
      apply_sum(updates);
    } else {
      for (auto& [replica, update] : updates)
        optimizer_->step(weights_.parameters, update.gradient.parameters, update.rate);
    }
    pending_.erase(pending_.begin());
  }
}

void ClockedStore::apply_sum(Updates& updates) {
  const Update& first = updates.begin()->second;
  for (auto other = std::next(updates.begin()); other != updates.end(); ++other)
    first.gradient.flat.add_(other->second.gradient.flat);
  optimizer_->step(weights_.parameters, first.gradient.parameters, first.rate);
}

}  // namespace pp::run
