// pp-profile import --format kineto: a trace of PyTorch's profiler (torch.profiler, export_chrome_trace) of a
// few steps of somebody's own script on one device. The trace has the times of the model's blocks; what they
// are made of, and all bytes, another profile of the same model has.
//
// Operations (cpu_op) that stand in no other are counted: on a CPU how long they take, on a GPU what the
// kernels take that they launch (External id). Forwards belong to the block in whose scope they begin;
// backwards (autograd::engine::evaluate_function) by their sequence number to the block of the forward with the
// same one, and gradients' accumulation, which has none, to the backward in front of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/profile/commands.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile_tool {
namespace {

constexpr double kMicroseconds = 1e-6;
constexpr std::string_view kBackward = "autograd::engine::evaluate_function: ", kModule = "nn.Module: ",
                           kUpdate = "Optimizer.step#", kOptimizer = "Optimizer.";

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::data, why); }

struct Event {
  double begin = 0, end = 0;  ///< microseconds
  std::string name;
  double cost = 0;                   ///< microseconds on the device
  std::int64_t sequence = -1;        ///< of an operation; -1: none
  std::vector<std::int64_t> dims{};  ///< of the first input
};

struct Trace {
  std::vector<Event> operations;  ///< in no other, by their beginnings
  std::vector<Event> inner;       ///< all that have sequence numbers, likewise
  std::vector<Event> scopes;      ///< modules and the script's own (record_function), likewise
  std::vector<Event> updates;     ///< of the optimizer, with all that it annotates
  bool gpu = false;
};

bool by_begin(const Event& a, const Event& b) { return a.begin < b.begin; }

double number_at(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

std::int64_t whole_at(const Json& args, const char* key, std::int64_t otherwise) {
  const auto found = args.find(key);
  return found != args.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

std::vector<std::int64_t> first_dims(const Json& args) {
  std::vector<std::int64_t> dims;
  const auto all = args.find("Input Dims");
  if (all == args.end() || !all->is_array() || all->empty() || !all->front().is_array()) return dims;
  for (const Json& size : all->front())
    if (size.is_number_integer()) dims.push_back(size.get<std::int64_t>());
  return dims;
}

/// By thread, outermost first; `launched`: which of them a kernel's id belongs to.
struct Threads {
  std::map<std::int64_t, std::vector<std::pair<Event, std::int64_t>>> operations;  ///< with their ids
  std::map<std::int64_t, double> kernels;                                          ///< microseconds, by id
};

void take(const Json& json, Trace& trace, Threads& threads) {
  if (!json.is_object() || json.value("ph", "") != "X") return;
  const std::string category = json.value("cat", "");
  const auto found = json.find("args");
  const Json args = found != json.end() && found->is_object() ? *found : Json::object();
  Event event{.begin = number_at(json, "ts"), .name = json.value("name", "")};
  event.end = event.begin + number_at(json, "dur");
  event.cost = event.end - event.begin;
  if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") {
    threads.kernels[whole_at(args, "External id", -1)] += event.cost;
  } else if (category == "cpu_op") {
    event.sequence = whole_at(args, "Sequence number", -1);
    event.dims = first_dims(args);
    threads.operations[whole_at(json, "tid", 0)].emplace_back(std::move(event),
                                                              whole_at(args, "External id", -1));
  } else if (category == "python_function" && event.name.starts_with(kModule)) {
    trace.scopes.push_back(std::move(event));
  } else if (category == "user_annotation") {
    (event.name.starts_with(kOptimizer) ? trace.updates : trace.scopes).push_back(std::move(event));
  }
}

/// What a GPU does for an operation is what the operations within it launch.
void sort_out(Trace& trace, Threads& threads) {
  const bool gpu = trace.gpu = !threads.kernels.empty();
  for (auto& [thread, list] : threads.operations) {
    std::ranges::sort(list, [](const auto& a, const auto& b) {
      return std::pair(a.first.begin, -a.first.end) < std::pair(b.first.begin, -b.first.end);
    });
    double until = -std::numeric_limits<double>::infinity();
    std::size_t outer = 0;
    for (auto& [event, id] : list) {
      if (event.begin >= until) {
        until = event.end;
        outer = trace.operations.size();
        trace.operations.push_back(event);
        if (gpu) trace.operations.back().cost = 0;
      }
      const auto kernels = threads.kernels.find(id);
      if (gpu && id >= 0 && kernels != threads.kernels.end()) trace.operations[outer].cost += kernels->second;
      if (event.sequence >= 0 && !event.name.starts_with(kBackward)) trace.inner.push_back(std::move(event));
    }
  }
  for (std::vector<Event>* const events : {&trace.operations, &trace.inner, &trace.scopes, &trace.updates})
    std::ranges::stable_sort(*events, by_begin);
}

Trace read_trace(std::string_view text) {
  const Json json = parse_json(text);
  const auto events = json.is_object() ? json.find("traceEvents") : json.end();
  if (!json.is_object() || events == json.end() || !events->is_array())
    refuse("has no traceEvents; give what torch.profiler's export_chrome_trace() writes");
  Trace trace;
  Threads threads;
  for (const Json& event : *events) take(event, trace, threads);
  sort_out(trace, threads);
  if (trace.operations.empty()) refuse("has no cpu_op; trace with activities=[ProfilerActivity.CPU, ...]");
  return trace;
}

/// `nn.Module: Block_` and 3 of `nn.Module: Block_3`; -1: no number.
std::pair<std::string, int> numbered(const std::string& name) {
  constexpr std::size_t kMostDigits = 6;
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || name.size() - digits > kMostDigits) return {name, -1};
  return {name.substr(0, digits), std::stoi(name.substr(digits))};
}

/// The scopes of the blocks: of the names that count so many, those that take longest.
std::vector<Event> scopes_of_blocks(const Trace& trace, int blocks) {
  std::map<std::string, std::set<int>> numbers;
  std::map<std::string, double> times;
  for (const Event& scope : trace.scopes) {
    const auto [name, n] = numbered(scope.name);
    if (n < 0) continue;
    numbers[name].insert(n);
    times[name] += scope.end - scope.begin;
  }
  std::string best, there;
  for (const auto& [name, of] : numbers) {
    there += (there.empty() ? "" : ", ") + name + " (" + std::to_string(of.size()) + ")";
    if (std::ssize(of) == blocks && (best.empty() || times[name] > times[best])) best = name;
  }
  if (best.empty())
    refuse("no scopes count the " + counted(blocks, "block") + " of --sizes; there are " +
           (there.empty() ? "none" : there) +
           ". Trace with with_stack=True, or run each block in record_function(f\"block {i}\")");
  std::vector<Event> scopes;
  for (const Event& scope : trace.scopes)
    if (const auto [name, n] = numbered(scope.name); name == best && n >= 0) scopes.push_back(scope);
  return scopes;
}

/// A forward of all blocks, and when it begins and ends.
struct Pass {
  double begin = 0, end = 0;
  std::vector<Event> blocks{};
  std::vector<double> forward{}, backward{};  ///< microseconds in front of the blocks, of each, behind them
};

/// Where an operation of the pass belongs: 0 in front of the blocks, then each block with what follows it.
std::size_t part_at(const Pass& pass, double time) {
  std::size_t part = 0;
  while (part < pass.blocks.size() && pass.blocks[part].begin <= time) ++part;
  return part == pass.blocks.size() && time >= pass.blocks.back().end ? part + 1 : part;
}

std::vector<Pass> passes_of(const Trace& trace, int blocks) {
  const std::vector<Event> scopes = scopes_of_blocks(trace, blocks);
  if (std::ssize(scopes) % blocks != 0) refuse("has a part of a forward; trace whole steps");
  std::vector<Pass> passes(scopes.size() / at(blocks));
  const int first = numbered(scopes.front().name).second;
  for (std::size_t i = 0; i < scopes.size(); ++i) {
    if (numbered(scopes[i].name).second - first != static_cast<int>(i) % blocks)
      refuse(scopes[i].name +
             " is run out of order, as where forwards are recomputed; trace a script without "
             "checkpointing, and plan with --recompute auto");
    passes[i / at(blocks)].blocks.push_back(scopes[i]);
  }
  for (std::size_t p = 0; p < passes.size(); ++p) {
    Pass& pass = passes[p];
    pass.forward.resize(at(blocks + 2));
    pass.backward.resize(at(blocks + 2));
    const double start = pass.blocks.front().begin, last = pass.blocks.back().end;
    pass.begin = -std::numeric_limits<double>::infinity();
    pass.end =
        p + 1 < passes.size() ? passes[p + 1].blocks.front().begin : std::numeric_limits<double>::infinity();
    for (const Event& operation : trace.operations) {
      if (!operation.name.starts_with(kBackward)) continue;
      if (operation.end <= start) pass.begin = std::max(pass.begin, operation.end);
      if (operation.begin >= last) pass.end = std::min(pass.end, operation.begin);
    }
    for (const Event& update : trace.updates)
      if (update.end <= start) pass.begin = std::max(pass.begin, update.end);
    for (const Event& scope : trace.scopes) {  // of the model
      if (scope.name.starts_with(kModule) && scope.begin <= start && scope.end >= last)
        pass.begin = std::max(pass.begin, scope.begin);
    }
  }
  return passes;
}

void add_times(const Trace& trace, std::vector<Pass>& passes) {
  std::multimap<std::int64_t, double> forwards;  // by sequence number, when they begin
  for (const Event& operation : trace.inner) forwards.emplace(operation.sequence, operation.begin);
  const auto pass_of = [&](double time) {
    Pass* found = nullptr;
    for (Pass& pass : passes)
      if (time >= pass.begin && time < pass.end) found = &pass;
    return found;
  };
  Pass* pass = nullptr;
  std::size_t part = 0;
  bool any = false;
  for (const Event& operation : trace.operations) {
    if (!operation.name.starts_with(kBackward)) {
      if (Pass* const of = pass_of(operation.begin))
        of->forward[part_at(*of, operation.begin)] += operation.cost;
      continue;
    }
    any = true;
    const auto [begin, end] = forwards.equal_range(operation.sequence);
    double latest = -1;
    for (auto one = begin; one != end; ++one)
      if (one->second < operation.begin) latest = std::max(latest, one->second);
    if (operation.sequence >= 0 && latest >= 0 && pass_of(latest) != nullptr) {
      pass = pass_of(latest);
      part = part_at(*pass, latest);
    }
    if (pass != nullptr) pass->backward[part] += operation.cost;
  }
  if (!any) refuse("has no backward; trace whole steps, loss.backward() included");
}

TimeStat stat_of(const std::vector<Pass>& passes, std::vector<double> Pass::*times, std::size_t part) {
  std::vector<double> seconds;
  for (const Pass& pass : passes) seconds.push_back((pass.*times)[part] * kMicroseconds);
  return pp::profile::summarise(seconds);
}

/// A layer's share of what its part takes, by the times of `sizes`.
TimeStat shared(const TimeStat& part, double share) {
  return {share * part.median, share * part.low, share * part.high, part.samples};
}

/// The layers [begin, end) and, last, the loss take what the trace has of them.
class Part {
 public:
  Part(Profile& profile, std::size_t begin, std::size_t end, bool loss) {
    for (std::size_t l = begin; l < end; ++l) points_.push_back(&profile.layers[l].points.front());
    if (loss && profile.loss) points_.push_back(&profile.loss->points.front());
  }

  void set(const TimeStat& forward, const TimeStat& backward) {
    const double all = sum(&LayerPoint::forward), back = sum(&LayerPoint::backward);
    for (LayerPoint* const point : points_) {
      const double f = share(point->forward, all), b = share(point->backward, back);
      const double scale = back > 0 ? backward.median.count() / back : 0;
      for (auto* const half : {&point->input_gradient, &point->weight_gradient})
        if (*half) *half = shared(**half, scale);
      point->forward = shared(forward, f);
      point->backward = shared(backward, b);
      point->first = point->in_part = point->alone = std::nullopt;
    }
  }

 private:
  double sum(TimeStat LayerPoint::*time) const {
    double seconds = 0;
    for (const LayerPoint* const point : points_) seconds += (point->*time).median.count();
    return seconds;
  }
  /// Without times all alike.
  double share(const TimeStat& time, double all) const {
    return all > 0 ? time.median.count() / all : 1.0 / static_cast<double>(points_.size());
  }

  std::vector<LayerPoint*> points_;
};

/// Samples of a micro-batch: what the option says, or else the rows of the first input in a block.
std::int64_t batch_of(const Trace& trace, const Event& block, int given) {
  if (given > 0) return given;
  for (const Event& operation : trace.operations)
    if (operation.begin >= block.begin && operation.begin < block.end && operation.dims.size() > 1)
      return operation.dims.front();
  refuse("does not say how many samples a micro-batch has; trace with record_shapes=True, or add --batch-size");
}

void keep_point(Profile& profile, std::int64_t size) {
  if (std::ranges::find(profile.micro_batch_sizes, size) == profile.micro_batch_sizes.end())
    refuse("micro-batches have " + counted(size, "sample") + ", which --sizes does not know; make it with " +
           "--micro-batch-sizes " + std::to_string(size));
  profile.micro_batch_sizes = {size};
  const auto other = [&](const LayerPoint& point) { return point.micro_batch_size != size; };
  for (LayerProfile& layer : profile.layers) std::erase_if(layer.points, other);
  if (profile.loss) std::erase_if(profile.loss->points, other);
}

/// `SGD` of `Optimizer.step#SGD.step`; nothing is known of others than these.
void set_update(Profile& profile, const Trace& trace) {
  std::map<std::string, std::vector<double>> seconds;
  for (const Event& update : trace.updates) {
    if (!update.name.starts_with(kUpdate)) continue;
    double cost = 0;
    for (const Event& operation : trace.operations)
      if (operation.begin >= update.begin && operation.end <= update.end) cost += operation.cost;
    const std::string name = update.name.substr(kUpdate.size());
    seconds[in_small_letters(name.substr(0, name.find('.')))].push_back(cost * kMicroseconds);
  }
  std::erase_if(profile.optimizers, [&](const OptimizerProfile& one) { return !seconds.contains(one.name); });
  for (OptimizerProfile& one : profile.optimizers) {
    one.update = pp::profile::summarise(seconds[one.name]);
    one.parts.clear();
    one.new_version.reset();
  }
}

}  // namespace

Profile import_kineto(std::string_view text, const Profile& sizes, int batch_size) {
  const Trace trace = read_trace(text);
  const std::vector<Block> blocks = blocks_of(sizes.model);
  if (blocks.empty())
    throw Error(ErrorKind::usage, "--sizes: its model has no numbered blocks, such as layers.3.norm");
  for (std::size_t b = 1; b < blocks.size(); ++b)
    if (blocks[b].begin != blocks[b - 1].end)
      throw Error(ErrorKind::usage, "--sizes: blocks of its model do not follow each other");
  if (trace.gpu != (sizes.device.kind == DeviceKind::cuda))
    throw Error(ErrorKind::usage, std::string("--sizes is of a ") +
                                      (trace.gpu ? "CPU, the trace of a GPU" : "GPU, the trace of a CPU") +
                                      "; make it for the traced device");
  std::vector<Pass> passes = passes_of(trace, static_cast<int>(blocks.size()));
  add_times(trace, passes);
  Profile profile = sizes;
  keep_point(profile, batch_of(trace, passes.front().blocks.front(), batch_size));
  const auto set = [&](std::size_t part, std::size_t begin, std::size_t end) {
    Part(profile, begin, end, part == blocks.size() + 1)
        .set(stat_of(passes, &Pass::forward, part), stat_of(passes, &Pass::backward, part));
  };
  set(0, 0, at(blocks.front().begin));
  for (std::size_t b = 0; b < blocks.size(); ++b) set(b + 1, at(blocks[b].begin), at(blocks[b].end));
  set(blocks.size() + 1, at(blocks.back().end), profile.layers.size());
  set_update(profile, trace);
  profile.whole_model.clear();
  profile.operation_overhead.reset();
  profile.trainer.reset();
  profile.mode = ProfileMode::imported;
  profile.estimated = {"input_gradient_s"};  // as the times of the layers within a block
  if (sizes.mode == ProfileMode::estimated) profile.estimated.emplace_back("saved_bytes");
  profile.context = {{"tool", "pp-profile"}, {"version", PP_VERSION}, {"format", "kineto"}};
  return profile;
}

}  // namespace pp::profile_tool
