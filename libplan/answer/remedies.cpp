#include "libplan/answer/remedies.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "libplan/request/machine.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

/// `24 GPUs (3 nodes)`: so many devices of the problem, which groups are made of, and their nodes where
/// they fill several.
std::string devices_text(const Problem& problem, std::size_t devices) {
  const std::vector<Device>& given = problem.cluster.devices;
  const std::ptrdiff_t in_node = std::ranges::count(given, given.front().node, &Device::node);
  const auto count = static_cast<std::ptrdiff_t>(devices);
  const int degree = group_size(problem.profile);
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

enum class Answer { no, yes, not_reached };

/// Whether some partition fits. Where only schedules compete that place their stages, these are searched and
/// simulated.
Answer feasible(const Problem& problem) {
  if (!goes_on(problem.request, problem.progress())) return Answer::not_reached;
  bool found = false, only_placed = true, stopped = false;
  const auto answer = [&] { return found ? Answer::yes : stopped ? Answer::not_reached : Answer::no; };
  try {
    check_request(problem.profile, problem.cluster, problem.graph, problem.request);
    problem.each_case([&](const PlanCase& one) {
      if (places_stages(one.schedule)) return;
      only_placed = false;
      if (found || stopped || one.devices.is_relaxed()) return;
      const std::int64_t limit = one.devices.limit.bytes;
      try {
        found = !fitting(one, problem, limit == kNoBytes ? limit : limit * one.devices.sharers).empty();
      } catch (const SearchStopped&) {
        stopped = true;
      }
    });
    if (!only_placed) return answer();
    const SearchOutcome outcome = problem.search();
    found = !outcome.ranked.empty(), stopped = outcome.cut_short;
    return answer();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return Answer::no;  // the changed request is not possible at all
  }
}

/// Asks in turn, until there is no time.
class Remedies {
 public:
  explicit Remedies(const Problem& problem) : problem_(problem) {}
  bool stopped() const { return stopped_; }

  std::string find(const std::optional<Bytes>& smallest_limit) {
    // Cheapest first: what a look at each partition says, then what is searched and simulated.
    const std::string recompute = recomputing(), tied = copies(), smaller = smaller_micro_batches();
    std::string schedule = other_schedule(Placed::no);
    if ((recompute + tied + smaller + schedule).empty()) schedule = other_schedule(Placed::yes);
    std::string text;
    for (const std::string& option : {tied, smaller, schedule, recompute})
      if (!option.empty()) text.append(text.empty() ? "" : ", or ").append(option);
    if (!text.empty()) return text;
    if (const std::size_t devices = enough_devices()) text = devices_text(problem_, devices);
    if (text.empty() && smallest_limit) text = more_memory(problem_, smallest_limit->value);
    return text;
  }

 private:
  bool fits(const Problem& changed) {
    const Answer answer = feasible(changed);
    stopped_ |= answer == Answer::not_reached;
    return answer == Answer::yes;
  }

  /// The fewest devices with which there is a plan, by nodes where there are several, up to about twice as
  /// many; 0: none. What fits on some devices fits with more.
  std::size_t enough_devices() {
    const std::size_t given = problem_.cluster.devices.size();
    const std::size_t most = std::min<std::size_t>(2 * given + 8, problem_.graph.layers.size());
    const auto larger = [&](std::size_t steps) {
      Cluster cluster = problem_.cluster;
      while (steps-- > 0) cluster = with_one_more(std::move(cluster));
      return cluster;
    };
    const std::size_t step = larger(1).devices.size() - given;
    const auto enough_with = [&](std::size_t steps) { return fits(problem_.on(larger(steps))); };
    std::size_t too_few = 0, enough = most < given ? 0 : (most - given) / step;
    if (requested_stages(problem_.request) != 0 || enough == 0 || !enough_with(enough)) return 0;
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      (enough_with(middle) ? enough : too_few) = middle;
    }
    return given + enough * step;
  }

  /// `--micro-batches 16`, or by their size where the request is: the fewest that fit. Sizes below the profiled
  /// ones need an option more.
  std::string smaller_micro_batches() {
    const bool single = problem_.profile.micro_batch_sizes.size() == 1;
    const std::int64_t least = std::ranges::min(problem_.profile.micro_batch_sizes);
    for (const int size : smaller_sizes(problem_)) {
      PlanRequest changed = problem_.request;
      std::string option;
      if (problem_.request.micro_batches) {
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
      if (fits(problem_.with(changed))) return option;
    }
    return {};
  }

  enum class Placed { no, yes };

  /// Among those that place their stages, or the others.
  std::string other_schedule(Placed placed) {
    const PlanRequest& request = problem_.request;
    if (chooses_schedule(request) || !require_schedule(request.schedule).synchronous) return {};
    for (const ScheduleRow& row : schedule_table()) {
      PlanRequest changed = request;
      changed.schedule = row.name;
      const bool open = row.candidate && row.synchronous && places_stages(row) == (placed == Placed::yes);
      if (open && fits(problem_.with(changed))) return "--schedule " + changed.schedule;
    }
    return {};
  }

  /// For weights that keep their layers in one stage.
  std::string copies() {
    if (problem_.graph.tied.empty()) return {};
    PlanRequest changed = problem_.request;
    changed.tied = TiedWeights::copies;
    const PlanGraph graph = planned_graph(problem_.profile, changed);
    return fits({problem_.profile, problem_.cluster, graph, changed}) ? "--tied copies" : "";
  }

  std::string recomputing() {
    PlanRequest changed = problem_.request;
    if (changed.recompute == RecomputeMode::automatic || changed.programs ||
        problem_.profile.context.contains("checkpoint"))
      return {};
    changed.recompute = RecomputeMode::automatic;
    return fits(problem_.with(changed)) ? "--recompute auto" : "";
  }

  const Problem& problem_;
  bool stopped_ = false;
};

/// `.5` of 500 thousandths; empty: of none.
std::string fraction_text(std::string digits) {
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  return digits.empty() ? "" : "." + digits;
}

}  // namespace

Partition fitting(const PlanCase& one, const Problem& problem, std::int64_t bytes) {
  MemoryLimit limit = one.devices.limit;
  limit.bytes = bytes == kNoBytes ? kNoBytes : bytes / one.devices.sharers;
  const StageMemory memory(one.chain, one.in_flight, limit);
  return find_fitting(search_case(one, memory, problem.cluster, problem.request), one.space);
}

void add_remedy(const Problem& problem, Infeasible& none) {
  Remedies remedies(problem);
  none.remedy = remedies.find(none.smallest_limit);
  none.cut_short |= remedies.stopped();
}

std::string typed_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMega = 1'000'000;
  const auto decimal = [&](std::int64_t unit, const char* name) -> std::string {
    if (bytes < unit || bytes % (unit / 1000) != 0) return {};
    return std::to_string(bytes / unit) +
           fraction_text(std::to_string(1000 + bytes % unit / (unit / 1000)).substr(1)) + name;
  };
  for (const auto& [unit, name] :
       {std::pair{kMega * kMega, "TB"}, std::pair{kMega * 1000, "GB"}, std::pair{kMega, "MB"}}) {
    if (const std::string text = decimal(unit, name); !text.empty()) return text;
  }
  for (const auto& [shift, name] : {std::pair{40, "TiB"}, std::pair{30, "GiB"}, std::pair{20, "MiB"}}) {
    const std::int64_t unit = std::int64_t{1} << shift;
    if (bytes < unit) continue;
    const std::int64_t hundredths = bytes / unit * 100 + (bytes % unit * 100 + unit - 1) / unit;
    return std::to_string(hundredths / 100) + fraction_text(std::to_string(100 + hundredths % 100).substr(1)) +
           name;
  }
  return std::to_string(bytes);
}

std::int64_t device_bytes(std::int64_t limit, const PlanRequest& request) {
  constexpr double kMost = 9e18;
  const double usable = request.memory_limit ? 1 : 1 - request.reserve;
  return static_cast<std::int64_t>(std::min(std::ceil(static_cast<double>(limit) / usable), kMost));
}

}  // namespace pp::plan
