// A row for each option that a plan's context tells.
#include "libplan/request/request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <type_traits>

#include "libplan/request/shapes.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

std::string join(const std::vector<int>& numbers, std::string_view separator) {
  std::string text;
  for (const int n : numbers) text.append(text.empty() ? "" : separator).append(std::to_string(n));
  return text;
}

/// Profiled sizes at which every layer had enough memory.
std::vector<int> usable_sizes(const Profile& profile) {
  std::vector<int> sizes;
  for (const std::int64_t size : profile.micro_batch_sizes) {
    const auto fails = [&](const LayerProfile& layer) {
      return std::any_of(layer.points.begin(), layer.points.end(), [&](const LayerPoint& point) {
        return point.micro_batch_size == size && point.out_of_memory;
      });
    };
    const bool failed = std::any_of(profile.layers.begin(), profile.layers.end(), fails) ||
                        (profile.loss && fails(*profile.loss));
    if (!failed) sizes.push_back(static_cast<int>(size));
  }
  return sizes;
}

/// What PlanRequest can mean without `auto`: one option.
BatchOption given_count(const PlanRequest& request) {
  return {*request.micro_batches, micro_batch_sizes(request.mini_batch, *request.micro_batches)};
}

BatchOption given_size(const PlanRequest& request, int size) {
  const int count = request.mini_batch / size;
  return {count, micro_batch_sizes(request.mini_batch, count)};
}

/// Names the nearest mini-batches that one of the profiled sizes divides.
[[noreturn]] void refuse_mini_batch(int mini_batch, std::vector<int> sizes) {
  if (sizes.empty())
    throw Error(ErrorKind::usage,
                "every profiled micro-batch size ran out of memory; profile the model at smaller sizes");
  std::sort(sizes.begin(), sizes.end());
  std::int64_t below = 0, above = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t size : sizes) {
    below = std::max(below, mini_batch / size * size);
    above = std::min(above, (mini_batch / size + 1) * size);
  }
  const std::string possible = (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above);
  const std::string otherwise = below > 0          ? "give --micro-batches"
                                : sizes.size() > 1 ? "allow --extrapolate"
                                                   : "allow --linear-batch";
  throw Error(ErrorKind::usage, "no profiled micro-batch size (" + join(sizes, ", ") +
                                    ") divides the mini-batch of " + std::to_string(mini_batch) +
                                    " samples; use a mini-batch of " + possible + ", or " + otherwise);
}

/// Whether `auto` may take the schedule for this request.
bool goes_with(const ScheduleRow& row, const PlanRequest& request) {
  if (!row.synchronous && !request.allow_async) return false;
  if (request.weight_policy && std::ranges::count(row.policies, *request.weight_policy) == 0) return false;
  if (request.tied == TiedWeights::copies && !may_copy_tied(row)) return false;
  if (request.shard == ShardChoice::optimizer && !may_shard(row)) return false;
  if (request.chunks_per_worker > 0 && (request.chunks_per_worker > 1) != (row.chunks != Chunks::one))
    return false;
  if (request.chunks_per_worker > 2 && row.chunks == Chunks::two) return false;
  const bool counts_stages = request.stages || !request.replicas.empty();
  if (counts_stages && request.chunks_per_worker == 0 && row.chunks != Chunks::one) return false;
  if (!shape_refusal(row, request).empty()) return false;
  return !places_stages(row) || has_copies(row, request.replicas);
}

const PlanRequest kFreeRequest;

/// A name, or JSON: `true`, `16`, `0.5`, `[1,2]`.
template <class T>
std::string value_text(const T& value) {
  if constexpr (NamedEnum<T>) {
    return std::string(name_of(value));
  } else if constexpr (requires { value.value; }) {
    return value_text(value.value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else {
    return dump_json_compact(Json(value));
  }
}

[[noreturn]] void refuse_value(const std::string& text) {
  throw Error(ErrorKind::data, "\"" + text + "\" is no value of this option; leave the entry out");
}

template <class T>
void read_value(T& value, const std::string& text) {
  if constexpr (NamedEnum<T>) {
    value = parse_enum<T>(text, "its value", ErrorKind::data);
  } else if constexpr (requires { value.value; }) {
    read_value(value.value, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else {
    const Json json = Json::parse(text, nullptr, false);
    const bool one = json.is_number() || json.is_boolean();
    if (one ? !std::is_arithmetic_v<T> : !json.is_array() || std::is_arithmetic_v<T>) refuse_value(text);
    try {
      value = json.get<T>();
    } catch (const Json::exception&) {
      refuse_value(text);
    }
    if (Json(value) != json) refuse_value(text);  // 1.5, of a count
  }
}

/// What stands in an optional member, or the member.
template <class T>
auto& held_by(T& member) {
  if constexpr (requires { member.has_value(); }) {
    return *member;
  } else {
    return member;
  }
}

std::string numbers_text(const std::vector<int>& numbers, char separator) {
  std::string text;
  for (const int n : numbers)
    text.append(text.empty() ? "" : std::string(1, separator)).append(std::to_string(n));
  return text;
}

struct ContextEntry {
  std::string_view key;
  std::string (*text)(const PlanRequest& request);              ///< empty: none
  void (*read)(PlanRequest& request, const std::string& text);  ///< nullptr: for one number of devices only
};

template <auto kMember>
constexpr ContextEntry entry_of(std::string_view key) {
  return {key,
          [](const PlanRequest& request) {
            const auto& member = request.*kMember;
            return member == kFreeRequest.*kMember ? std::string() : value_text(held_by(member));
          },
          [](PlanRequest& request, const std::string& text) {
            auto& member = request.*kMember;
            if constexpr (requires { member.emplace(); }) member.emplace();
            read_value(held_by(member), text);
          }};
}

constexpr ContextEntry unread(ContextEntry entry) {
  entry.read = nullptr;
  return entry;
}

std::string cut_at_text(const PlanRequest& request) {
  if (!request.cut_at) return {};
  return request.cut_at->depth == 0 ? "block" : std::to_string(request.cut_at->depth);
}
void read_cut_at(PlanRequest& request, const std::string& text) {
  request.cut_at = PlanRequest::CutAt{};
  if (text != "block") read_value(request.cut_at->depth, text);
}
std::string window_text(const PlanRequest& request) {
  if (!request.windows.empty()) return numbers_text(request.windows, ',');
  return request.window ? value_text(*request.window) : std::string();
}
/// A list is of stages: one that was given, or what the search found.
void read_window(PlanRequest& request, const std::string& text) {
  request.window = find_enum<WindowRule>(text);
}

constexpr std::array kEntries{
    entry_of<&PlanRequest::schedule>("schedule"),
    entry_of<&PlanRequest::allow_async>("allow_async"),
    entry_of<&PlanRequest::extrapolate>("extrapolate"),
    entry_of<&PlanRequest::linear_batch>("linear_batch"),
    entry_of<&PlanRequest::force_units>("force_units"),
    entry_of<&PlanRequest::trainer>("for"),
    entry_of<&PlanRequest::even_replicas>("even_replicas"),
    entry_of<&PlanRequest::even_nodes>("even_nodes"),
    entry_of<&PlanRequest::recompute_extent>("recompute_extent"),
    unread(entry_of<&PlanRequest::micro_batches>("micro_batches")),  // the plan's own
    entry_of<&PlanRequest::micro_batch_size>("micro_batch_size"),
    entry_of<&PlanRequest::chunks_per_worker>("chunks"),
    unread(entry_of<&PlanRequest::stages>("stages")),
    entry_of<&PlanRequest::max_stages>("max_stages"),
    entry_of<&PlanRequest::max_replicas>("max_replicas"),
    entry_of<&PlanRequest::memory_limit>("memory_limit_bytes"),
    entry_of<&PlanRequest::reserve>("reserve"),
    entry_of<&PlanRequest::context_bytes>("context_bytes"),
    entry_of<&PlanRequest::optimizer_state_ratio>("optimizer_state_ratio"),
    entry_of<&PlanRequest::placement>("placement"),
    entry_of<&PlanRequest::layer_order>("layer_order"),
    ContextEntry{"cut_at", cut_at_text, read_cut_at},
    ContextEntry{"cuts", [](const PlanRequest& request) { return numbers_text(request.cuts, ','); }, nullptr},
    ContextEntry{"replicas", [](const PlanRequest& request) { return numbers_text(request.replicas, '-'); },
                 nullptr},
    entry_of<&PlanRequest::recompute>("recompute"),
    entry_of<&PlanRequest::shard>("shard"),
    entry_of<&PlanRequest::all_reduce_overlap>("all_reduce_overlap"),
    entry_of<&PlanRequest::tied>("tied"),
    entry_of<&PlanRequest::swap_bandwidth>("swap_bandwidth"),
    entry_of<&PlanRequest::swap_overlap>("swap_overlap"),
    ContextEntry{"window", window_text, read_window}};

}  // namespace

bool goes_on(const PlanRequest& request, const SearchProgress& progress) {
  return !request.observer || request.observer(progress);
}

double all_reduce_overlap(const Cluster& cluster, const PlanRequest& request) {
  if (request.all_reduce_overlap) return *request.all_reduce_overlap;
  const bool measured = !cluster.levels.empty() && cluster.levels.back().all_reduce;
  return measured ? cluster.levels.back().all_reduce->overlap : 0;
}

PlanGraph planned_graph(const Profile& profile, const PlanRequest& request) {
  PlanGraph graph = make_graph(profile);
  if (request.tied == TiedWeights::copies) graph.tied.clear();
  if (request.cut_at) graph.blocks = blocks_of(graph, request.cut_at->depth);
  if (request.recompute_extent == RecomputeExtent::first_blocks) {
    graph.recompute_blocks = numbered_blocks(graph);
    // Megatron-Core runs none of them again with recompute_method "block".
    graph.recompute_blocks.resize(graph.recompute_blocks.size() - prediction_blocks(profile.model).size());
  }
  return graph;
}

int most_stages(const PlanGraph& graph) {
  std::vector<int> order(graph.layers.size());
  std::iota(order.begin(), order.end(), 0);
  const SearchSpace space = search_space(graph, order, {}, 1, 1);
  int stages = 1;
  for (int k = 1; k < graph.size(); ++k) stages += space.may_cut(k) ? 1 : 0;
  return stages;
}

namespace {

/// What the trainer of an estimated profile says where neither the request nor a measurement does.
PlanRequest with_trainer(const Profile& profile, const Cluster& cluster, PlanRequest request) {
  if (!profile.trainer) return request;
  const bool measured = !cluster.levels.empty() && cluster.levels.back().all_reduce;
  if (!request.all_reduce_overlap && !measured && profile.trainer->hidden_gradients > 0)
    request.all_reduce_overlap = profile.trainer->hidden_gradients;
  if (request.context_bytes == Bytes(0)) request.context_bytes = profile.trainer->process;
  if (request.recompute_extent == RecomputeExtent::any) request.recompute_extent = profile.trainer->recompute;
  return request;
}

}  // namespace

PlanRequest with_tied_weights(const Profile& profile, const Cluster& cluster, PlanRequest request) {
  request = with_trainer(profile, cluster, std::move(request));
  if (request.tied != TiedWeights::automatic) return request;
  request.tied = TiedWeights::stage;
  const PlanGraph graph = planned_graph(profile, request);
  const int wanted = std::max(requested_stages(request), cluster.devices.size() > 1 ? 2 : 1);
  PlanRequest copies = request;
  copies.tied = TiedWeights::copies;
  const bool helps = most_stages(graph) < wanted && most_stages(planned_graph(profile, copies)) >= wanted;
  if (graph.tied.empty() || !helps) return request;
  const std::vector<const ScheduleRow*> rows = requested_schedules(copies);
  const bool may = std::ranges::all_of(rows, [](const ScheduleRow* row) { return may_copy_tied(*row); });
  return may && !rows.empty() ? copies : request;
}

std::int64_t usable_bytes(const Device& device, const PlanRequest& request) {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  if (device.memory.value > 0) {
    bytes =
        static_cast<std::int64_t>(std::floor((1 - request.reserve) * static_cast<double>(device.memory.value)));
    if (request.memory_limit) bytes = device.memory.value;
  }
  return request.memory_limit ? std::min(bytes, request.memory_limit->value) : bytes;
}

SwapLink swap_link(RuleSet rules, const Cluster& cluster, const PlanRequest& request) {
  if (rules != RuleSet::swapped) return {};
  if (!request.swap_bandwidth) {
    throw Error(ErrorKind::usage,
                "weights live on the host here, and nothing says how fast they come to the device; add "
                "--swap-bandwidth, for example 12GB/s (the report of pp-run tells what it measured)");
  }
  const bool copies_itself = cluster.devices.front().kind == DeviceKind::cuda;
  return {*request.swap_bandwidth, request.swap_overlap.value_or(copies_itself ? 1 : 0)};
}

bool places_stages(const ScheduleRow& schedule) {
  const bool one_worker =
      schedule.replication == Replication::none || schedule.replication == Replication::pipelines;
  return one_worker && schedule.synchronous;
}

bool has_copies(const ScheduleRow& schedule, std::span<const int> replicas) {
  const int most = schedule.replication == Replication::pipelines && !replicas.empty() ? replicas.front() : 1;
  return std::ranges::all_of(replicas, [&](int count) { return count == most; });
}

bool may_shard(const ScheduleRow& schedule) {
  return schedule.synchronous && schedule.rules == RuleSet::standard;
}

std::vector<Shard> shards_of(const ScheduleRow& schedule, const PlanRequest& request) {
  if (request.shard == ShardChoice::none || !may_shard(schedule)) return {Shard::none};
  if (request.shard == ShardChoice::optimizer) return {Shard::optimizer};
  return {Shard::none, Shard::optimizer};
}

bool may_copy_tied(const ScheduleRow& schedule) { return schedule.synchronous && !places_stages(schedule); }

bool chooses_schedule(const PlanRequest& request) {
  return request.schedule == "auto" || request.schedule.find(',') != std::string::npos;
}

std::vector<const ScheduleRow*> requested_schedules(const PlanRequest& request) {
  std::vector<const ScheduleRow*> rows;
  if (request.schedule == "auto") {
    for (const ScheduleRow& row : schedule_table()) {
      if (row.candidate && goes_with(row, request)) rows.push_back(&row);
    }
    return rows;
  }
  std::string_view names = request.schedule;
  for (std::size_t comma = 0; comma != std::string_view::npos; names.remove_prefix(comma + 1)) {
    comma = names.find(',');
    rows.push_back(&require_schedule(names.substr(0, comma)));
    if (comma == std::string_view::npos) break;
  }
  return rows;
}

bool knows_split(const Profile& profile) {
  if (std::ranges::count(profile.estimated, "input_gradient_s") > 0) return false;
  return std::ranges::all_of(profile.layers, [](const LayerProfile& layer) {
    return std::ranges::all_of(layer.points, [](const LayerPoint& point) {
      return point.out_of_memory || point.input_gradient.has_value();
    });
  });
}

std::vector<const ScheduleRow*> planned_schedules(const Profile& profile, const PlanRequest& request) {
  std::vector<const ScheduleRow*> rows = requested_schedules(request);
  if (request.schedule == "auto" && !knows_split(profile))
    std::erase_if(rows, [](const ScheduleRow* row) { return row->split_backward; });
  return rows;
}

std::vector<BatchOption> batch_options(const Profile& profile, const PlanRequest& request,
                                       const ScheduleRow& schedule) {
  if (!schedule.synchronous && !groups(schedule, policy_of(schedule, request))) {
    const bool one = request.micro_batches.value_or(1) == 1 &&
                     request.micro_batch_size.value_or(request.mini_batch) == request.mini_batch;
    if (!one) {
      throw Error(ErrorKind::usage,
                  "schedule " + std::string(schedule.name) +
                      " updates after every micro-batch: micro_batches must be 1; leave it out and set "
                      "the mini-batch to the size of one micro-batch");
    }
    return {{1, {request.mini_batch}}};
  }
  if (request.micro_batches) return {given_count(request)};
  if (request.micro_batch_size) {
    if (request.mini_batch % *request.micro_batch_size != 0) {
      const int count = std::max(1, request.mini_batch / *request.micro_batch_size);
      throw Error(ErrorKind::usage, "micro_batch_size = " + std::to_string(*request.micro_batch_size) +
                                        " does not divide the mini-batch of " +
                                        std::to_string(request.mini_batch) + " samples; use a mini-batch of " +
                                        std::to_string(count * *request.micro_batch_size) +
                                        ", or --micro-batches for "
                                        "unequal sizes");
    }
    return {given_size(request, *request.micro_batch_size)};
  }
  std::vector<BatchOption> options;
  std::vector<int> sizes = usable_sizes(profile);
  std::sort(sizes.rbegin(), sizes.rend());
  for (const int size : sizes) {
    if (request.mini_batch % size == 0 && request.mini_batch / size <= kMicroBatchLimit)
      options.push_back(given_size(request, size));
  }
  if (options.empty() && (request.extrapolate || request.linear_batch))
    options.push_back(given_size(request, request.mini_batch));
  if (options.empty()) refuse_mini_batch(request.mini_batch, std::move(sizes));
  return options;
}

SearchSpace search_space(const PlanGraph& graph, const std::vector<int>& order, const PlanRequest& request,
                         int devices, int most_replicas) {
  SearchSpace space;
  space.layers = graph.size();
  space.devices = devices;
  space.max_replicas = std::min(devices, most_replicas);
  if (request.max_replicas > 0) space.max_replicas = std::min(space.max_replicas, request.max_replicas);
  space.exact_stages = requested_stages(request);
  space.max_stages = std::min({request.max_stages.value_or(0), space.layers, devices});
  space.replicas = request.replicas;
  const int elsewhere = std::max(space.exact_stages, 1) - 1;  // devices of the other stages, at least
  space.max_replicas = std::max(std::min(space.max_replicas, devices - elsewhere), 1);
  if (!space.replicas.empty())
    space.max_replicas = std::min(space.max_replicas, *std::ranges::max_element(space.replicas));
  if (request.cuts.empty() && !graph.has_groups()) return space;
  space.cut_allowed.assign(order.size() + 1, request.cuts.empty() ? 1 : 0);
  for (const int cut : request.cuts) space.cut_allowed[at(cut)] = 1;
  std::vector<int> position(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) position[at(order[p])] = static_cast<int>(p);
  graph.for_each_group([&](const std::vector<int>& group) {
    const auto place = [&](int layer) { return position[at(layer)]; };
    const auto [first, last] = std::ranges::minmax(group, {}, place);
    std::fill(space.cut_allowed.begin() + place(first) + 1, space.cut_allowed.begin() + place(last) + 1,
              char{0});
  });
  return space;
}

WindowRule window_of(const PlanRequest& request) { return request.window.value_or(WindowRule::win); }

InFlight in_flight_of(const ScheduleRow& schedule, const PlanRequest& request, int micro_batches) {
  InFlight in_flight;
  in_flight.all = schedule.keeps_all;
  in_flight.last_first = schedule.last_first;
  const WindowRule own = schedule.wide ? WindowRule::wide : WindowRule::win;
  in_flight.rule = schedule.windowed ? window_of(request) : own;
  in_flight.windows = request.windows;
  in_flight.policy = policy_of(schedule, request);
  const bool clocked = schedule.rules == RuleSet::clocked;  // a frame's backward follows its forward
  in_flight.micro_batches = schedule.synchronous ? micro_batches : clocked ? 1 : 0;
  in_flight.per_update = micro_batches;
  return in_flight;
}

WeightPolicy policy_of(const ScheduleRow& schedule, const PlanRequest& request) {
  return request.weight_policy.value_or(schedule.default_policy());
}

int requested_stages(const PlanRequest& request) {
  if (!request.cuts.empty()) return static_cast<int>(request.cuts.size()) + 1;
  if (request.stages) return *request.stages;
  if (!request.replicas.empty()) return static_cast<int>(request.replicas.size());
  if (request.window == WindowRule::explicit_list) return static_cast<int>(request.windows.size());
  return 0;
}

void add_options(Context& context, const PlanRequest& request) {
  for (const char* const key : {"schedule", "micro_batches", "window"}) context[key] = "auto";
  for (const ContextEntry& entry : kEntries)
    if (std::string text = entry.text(request); !text.empty())
      context[std::string(entry.key)] = std::move(text);
}

void read_options(PlanRequest& request, const Context& context) {
  for (const ContextEntry& entry : kEntries) {
    const auto found = context.find(std::string(entry.key));
    if (found == context.end() || entry.read == nullptr) continue;
    with_context("context, " + std::string(entry.key), [&] { entry.read(request, found->second); });
  }
}

}  // namespace pp::plan
