#include "libplan/report/unequal_layers.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <vector>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

struct Timed {
  const Layer* layer = nullptr;
  const LayerProfile* profile = nullptr;
  const LayerPoint* point = nullptr;
  Seconds time() const { return point->forward.median + point->backward.median; }
};

bool same_code(const Timed& a, const Timed& b) {
  const auto key = [](const Timed& one) {
    return std::tie(one.layer->op, one.profile->parameter_count, one.profile->parameters, one.point->output,
                    one.point->saved);
  };
  return key(a) == key(b) && a.profile->forward_flops_per_sample == b.profile->forward_flops_per_sample &&
         a.layer->attributes == b.layer->attributes;
}

std::vector<std::vector<Timed>> equal_groups(const Profile& profile) {
  std::vector<std::vector<Timed>> groups;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const LayerProfile& layer = profile.layers[l];
    if (layer.points.empty() || layer.points.back().out_of_memory) continue;
    const Timed timed{&profile.model.layers[l], &layer, &layer.points.back()};
    const auto known =
        std::ranges::find_if(groups, [&](const auto& group) { return same_code(group.front(), timed); });
    (known == groups.end() ? groups.emplace_back() : *known).push_back(timed);
  }
  return groups;
}

/// Of times that ascend, how far they are from the one in the middle, in sum.
Seconds off_median(std::span<const Timed> ascending) {
  const Seconds middle = ascending[ascending.size() / 2].time();
  Seconds sum{};
  for (const Timed& one : ascending) sum += std::chrono::abs(one.time() - middle);
  return sum;
}

}  // namespace

std::optional<UnequalLayers> unequal_layers(const Profile& profile) {
  constexpr double kUnequal = 1.5, kShare = 0.05;
  if (profile.mode != ProfileMode::in_place && profile.mode != ProfileMode::isolated) return std::nullopt;
  std::vector<std::vector<Timed>> groups = equal_groups(profile);
  Seconds all{};
  for (const auto& group : groups) {
    for (const Timed& one : group) all += one.time();
  }
  Seconds worst = kShare * all;
  std::optional<UnequalLayers> found;
  for (auto& group : groups) {
    std::ranges::stable_sort(group, {}, &Timed::time);
    const Timed &fastest = group.front(), &slowest = group.back();
    const Seconds off = off_median(group);
    if (slowest.time() <= kUnequal * fastest.time() || off <= worst) continue;
    worst = off;
    found = {static_cast<int>(group.size()), fastest.layer->name, slowest.layer->name, fastest.time(),
             slowest.time()};
  }
  return found;
}

}  // namespace pp::plan
