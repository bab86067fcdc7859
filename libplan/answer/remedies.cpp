#include "libplan/answer/remedies.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "libplan/answer/typed_bytes.h"
#include "libplan/request/machine.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/counted.h"

namespace pp::plan {
namespace {

/// Whether the search finds a plan: any partition that fits. Where only schedules compete that place their
/// stages, these are simulated.
bool feasible(const Problem& problem) {
  if (!goes_on(problem.request, problem.progress())) return false;
  bool found = false;
  bool only_placed = true;
  try {
    check_request(problem.profile, problem.cluster, problem.graph, problem.request);
    problem.each_case([&](const PlanCase& one) {
      if (places_stages(one.schedule)) return;
      only_placed = false;
      if (found || one.devices.is_relaxed()) return;
      const std::int64_t limit = one.devices.limit.bytes;
      found = !fitting(one, problem, limit == kNoBytes ? limit : limit * one.devices.sharers).empty();
    });
    return found || (only_placed && !problem.search().empty());
  } catch (const SearchStopped&) {
    return false;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;  // the changed request is not possible at all
  }
}

/// The fewest devices like the last one with which there is a plan, up to about twice as many; 0: none. What
/// fits on some devices fits with more.
std::size_t enough_devices(const Problem& problem) {
  std::size_t too_few = problem.cluster.devices.size();
  std::size_t enough = std::min<std::size_t>(2 * too_few + 8, problem.graph.layers.size());
  const auto fits = [&](std::size_t devices) {
    Cluster larger = problem.cluster;
    while (larger.devices.size() < devices) larger = with_one_more_device(std::move(larger));
    return feasible(problem.on(larger));
  };
  if (requested_stages(problem.request) != 0 || enough <= too_few || !fits(enough)) return 0;
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  return enough;
}

/// `24 GPUs (3 nodes)`: so many devices of the problem, which tensor groups are made of, and their nodes where
/// they fill several.
std::string devices_text(const Problem& problem, std::size_t devices) {
  const std::vector<Device>& given = problem.cluster.devices;
  const std::ptrdiff_t in_node = std::ranges::count(given, given.front().node, &Device::node);
  const auto count = static_cast<std::ptrdiff_t>(devices);
  const int degree = problem.profile.tensor_degree;
  std::string text = degree > 1 ? counted(count * degree, "GPU") : counted(count, "device");
  const bool nodes = !given.front().node.empty() && count % in_node == 0 && count > in_node;
  return text + (nodes ? " (" + counted(count / in_node, "node") + ")" : "");
}

/// `limit` bytes per device: an option where the devices have them, else other devices.
std::string more_memory(const Problem& problem, std::int64_t limit) {
  const bool there = std::ranges::all_of(problem.cluster.devices, [&](const Device& device) {
    return device.memory.value == 0 || device.memory.value >= limit;
  });
  if (there) return "--memory-limit " + typed_bytes(limit);
  const std::string text = typed_bytes(device_bytes(limit, problem.request));
  return "devices with " + text + (std::isdigit(text.back()) != 0 ? " bytes" : "") + " of memory each";
}

/// Sizes below those that the request tries, the largest first: profiled ones where one is given, then halves.
std::vector<int> smaller_sizes(const Problem& problem) {
  const PlanRequest& request = problem.request;
  std::int64_t size = problem.profile.micro_batch_sizes.front();
  for (const std::int64_t other : problem.profile.micro_batch_sizes) size = std::min(size, other);
  std::vector<int> sizes;
  if (request.micro_batches || request.micro_batch_size) {
    const std::int64_t mini_batch = request.mini_batch, count = request.micro_batches.value_or(1);
    const std::int64_t given = request.micro_batch_size.value_or((mini_batch + count - 1) / count);
    for (const std::int64_t other : problem.profile.micro_batch_sizes) {
      if (other < given) sizes.push_back(static_cast<int>(other));
    }
    size = std::min(size, given);
  }
  for (size /= 2; size > 0; size /= 2) sizes.push_back(static_cast<int>(size));
  std::ranges::sort(sizes, std::greater());
  std::erase_if(sizes, [&](int one) { return request.mini_batch % one != 0; });
  return sizes;
}

/// `--micro-batches 16`, or by their size where the request is: the fewest that fit. Sizes below the profiled
/// ones need an option more.
std::string smaller_micro_batches(const Problem& problem) {
  const bool single = problem.profile.micro_batch_sizes.size() == 1;
  const std::int64_t least = std::ranges::min(problem.profile.micro_batch_sizes);
  for (const int size : smaller_sizes(problem)) {
    PlanRequest changed = problem.request;
    std::string option;
    if (problem.request.micro_batches) {
      changed.micro_batches = changed.mini_batch / size;
      option = "--micro-batches " + std::to_string(*changed.micro_batches);
    } else {
      changed.micro_batch_size = size;
      option = "--micro-batch-size " + std::to_string(size);
    }
    if (size < least && !changed.extrapolate && !changed.linear_batch) {
      (single ? changed.linear_batch : changed.extrapolate) = true;
      option += single ? " --linear-batch" : " --extrapolate";
    }
    if (feasible(problem.with(changed))) return option;
  }
  return {};
}

std::string other_schedule(const Problem& problem) {
  const PlanRequest& request = problem.request;
  if (chooses_schedule(request) || !require_schedule(request.schedule).synchronous) return {};
  for (const ScheduleRow& row : schedule_table()) {
    PlanRequest changed = request;
    changed.schedule = row.name;
    if (row.candidate && row.synchronous && feasible(problem.with(changed)))
      return "--schedule " + changed.schedule;
  }
  return {};
}

/// Of weights that keep their layers in one stage.
std::string copies(const Problem& problem) {
  if (problem.graph.tied.empty()) return {};
  PlanRequest changed = problem.request;
  changed.tied = TiedWeights::copies;
  const PlanGraph graph = planned_graph(problem.profile, changed);
  return feasible({problem.profile, problem.cluster, graph, changed}) ? "--tied copies" : "";
}

std::string recomputing(const Problem& problem) {
  PlanRequest changed = problem.request;
  if (changed.recompute == RecomputeMode::automatic || changed.programs) return {};
  changed.recompute = RecomputeMode::automatic;
  return feasible(problem.with(changed)) ? "--recompute auto" : "";
}

}  // namespace

Partition fitting(const PlanCase& one, const Problem& problem, std::int64_t bytes) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes == kNoBytes ? kNoBytes : bytes / one.devices.sharers;
  const StageMemory memory(one.chain, one.in_flight, limit);
  return find_fitting(search_case(one, memory, problem.cluster, problem.request), one.space);
}

std::string find_remedy(const Problem& problem, const std::optional<Bytes>& smallest_limit) {
  std::string text;
  for (const std::string& option :
       {copies(problem), smaller_micro_batches(problem), other_schedule(problem), recomputing(problem)}) {
    if (!option.empty()) text.append(text.empty() ? "" : ", or ").append(option);
  }
  if (!text.empty()) return text;
  if (const std::size_t devices = enough_devices(problem)) return devices_text(problem, devices);
  return smallest_limit ? more_memory(problem, smallest_limit->value) : std::string();
}

}  // namespace pp::plan
