#include "libprofile/report/merge.h"

#include <algorithm>
#include <iterator>

namespace pp::profile {
namespace {

void require_equal(const std::string& what, const std::string& first, const std::string& second,
                   const std::string& remedy) {
  if (first == second) return;
  throw Error(ErrorKind::usage,
              what + ": \"" + first + "\" and \"" + second + "\" cannot be merged; " + remedy);
}

void check_alike(const Profile& first, const Profile& second) {
  const std::string same_way = "profile both sizes in the same way";
  require_equal("model", first.model.name, second.model.name, "profiles of one model can");
  require_equal("model hash", first.model_hash, second.model_hash,
                "the models share only their name; profile one of them again");
  const auto type = [](const Profile& profile) {
    return std::string(profile.products ? name_of(*profile.products) : name_of(profile.dtype));
  };
  require_equal("dtype", type(first), type(second), same_way);
  require_equal("memory format", std::string(name_of(first.memory_format)),
                std::string(name_of(second.memory_format)), same_way);
  const auto autocast = [](const Profile& profile) {
    return profile.autocast ? std::string(name_of(*profile.autocast)) : "none";
  };
  require_equal("autocast", autocast(first), autocast(second), same_way);
  require_equal("tensor degree", std::to_string(first.tensor_degree), std::to_string(second.tensor_degree),
                same_way);
  require_equal("context degree", std::to_string(first.context_parallel.degree),
                std::to_string(second.context_parallel.degree), same_way);
  require_equal("expert degree", std::to_string(first.expert_parallel.degree),
                std::to_string(second.expert_parallel.degree), same_way);
  require_equal("shard degree", std::to_string(first.shard_group.degree),
                std::to_string(second.shard_group.degree), same_way);
  require_equal("sharding", std::string(name_of(first.shard_group.sharding)),
                std::string(name_of(second.shard_group.sharding)), same_way);
  require_equal("mode", std::string(name_of(first.mode)), std::string(name_of(second.mode)), same_way);
  const auto loss = [](const Profile& profile) { return profile.loss ? "measured" : "not measured"; };
  require_equal("loss", loss(first), loss(second), same_way);
  const auto& a = first.device;
  const auto& b = second.device;
  const std::string one_device = "measure all sizes on one kind of device";
  require_equal("device kind", std::string(name_of(a.kind)), std::string(name_of(b.kind)), one_device);
  require_equal("device name", a.name, b.name, one_device);
  require_equal("cores per device", std::to_string(a.cores_per_device), std::to_string(b.cores_per_device),
                same_way);
  require_equal("devices busy", std::to_string(a.devices_busy), std::to_string(b.devices_busy), same_way);
}

std::vector<std::int64_t> common_sizes(const Profile& first, const Profile& second) {
  std::vector<std::int64_t> common;
  std::ranges::set_intersection(first.micro_batch_sizes, second.micro_batch_sizes, std::back_inserter(common));
  return common;
}

/// Both lists in one, ascending in their size; of equal sizes only the entry that is `preferred`.
template <class Point>
std::vector<Point> merged_points(const std::vector<Point>& preferred, const std::vector<Point>& others) {
  std::vector<Point> points = preferred;
  for (const Point& point : others) {
    const auto at = std::ranges::lower_bound(points, point.micro_batch_size, {}, &Point::micro_batch_size);
    if (at == points.end() || at->micro_batch_size != point.micro_batch_size) points.insert(at, point);
  }
  return points;
}

Context merged_context(const Context& first, const Context& second) {
  Context merged = first;
  for (const auto& [key, value] : second) {
    const auto [at, is_new] = merged.emplace(key, value);
    if (!is_new && at->second != value) at->second += "; " + value;
  }
  return merged;
}

template <class Element>
void append_new(std::vector<Element>& list, const std::vector<Element>& others) {
  for (const Element& element : others) {
    if (std::ranges::find(list, element) == list.end()) list.push_back(element);
  }
}

}  // namespace

Profile merge_profiles(const Profile& first, const Profile& second, Overlap overlap) {
  check_alike(first, second);
  if (const auto common = common_sizes(first, second); overlap == Overlap::refuse && !common.empty()) {
    throw Error(ErrorKind::usage, "both profiles have micro-batch sizes " + to_text(common) +
                                      "; say whose to keep with --overlap first or --overlap second");
  }
  const Profile& kept = overlap == Overlap::second ? second : first;
  const Profile& added = overlap == Overlap::second ? first : second;

  Profile merged = first;
  merged.context = merged_context(first.context, second.context);
  merged.micro_batch_sizes.clear();
  std::ranges::set_union(first.micro_batch_sizes, second.micro_batch_sizes,
                         std::back_inserter(merged.micro_batch_sizes));
  for (std::size_t l = 0; l < merged.layers.size(); ++l)
    merged.layers[l].points = merged_points(kept.layers[l].points, added.layers[l].points);
  if (merged.loss) merged.loss->points = merged_points(kept.loss->points, added.loss->points);
  merged.whole_model = merged_points(kept.whole_model, added.whole_model);
  merged.kernels.clear();  // of an operation that both know, the entry of `kept`
  std::ranges::set_union(kept.kernels, added.kernels, std::back_inserter(merged.kernels), {},
                         &KernelChoice::key, &KernelChoice::key);
  append_new(merged.estimated, second.estimated);
  return merged;
}

}  // namespace pp::profile
