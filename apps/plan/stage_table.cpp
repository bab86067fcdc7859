#include "apps/plan/stage_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "apps/cli/table.h"
#include "libplan/plan/programs.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"

namespace pp::plan_tool {
namespace {

using plan::Plan;
using plan::Stage;

constexpr std::ptrdiff_t kRun = 4;  ///< equal numbers in a list that are counted
constexpr std::size_t kAlike = 3;   ///< equal stages that share a row
constexpr std::size_t kListed = 2;  ///< devices of a stage that are named one by one

/// Ids need not be positions.
std::size_t position_of(const Plan& plan, DeviceId device) {
  return at(std::ranges::find(plan.devices, device, &Device::id) - plan.devices.begin());
}

std::string name_at(const Plan& plan, std::size_t position) {
  return device_name(plan.devices, plan.devices[position]);
}

std::string first_to_last(const std::string& first, const std::string& last) {
  return first == last ? first : first + " .. " + last;
}

/// `a/cuda:0 .. a/cuda:5, b/cuda:1`: ranges of neighbours in the cluster, ascending.
std::string ranges_text(const Plan& plan, std::vector<std::size_t> positions) {
  std::ranges::sort(positions);
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    for (end = begin + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ", ") +
            first_to_last(name_at(plan, positions[begin]), name_at(plan, positions[end - 1]));
  }
  return text;
}

/// Those of stages [begin, end): one by one where they are few.
std::string devices_of(const Plan& plan, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> positions;
  for (std::size_t s = begin; s < end; ++s) {
    for (const WorkerId worker : plan.stages[s].workers)
      positions.push_back(position_of(plan, plan.workers[index(worker)].device));
  }
  if (positions.size() > kListed) return ranges_text(plan, std::move(positions));
  std::string list;
  for (const std::size_t position : positions)
    list.append(list.empty() ? "" : " ").append(name_at(plan, position));
  return list;
}

/// `unused devices: cpu:4, cpu:6 .. cpu:9`; nothing when every device has a worker.
std::string unused_text(const Plan& plan) {
  std::vector<bool> used(plan.devices.size());
  for (const plan::Worker& worker : plan.workers) used[position_of(plan, worker.device)] = true;
  std::vector<std::size_t> unused;
  for (std::size_t d = 0; d < used.size(); ++d) {
    if (!used[d]) unused.push_back(d);
  }
  return unused.empty() ? "" : "unused devices: " + ranges_text(plan, std::move(unused)) + '\n';
}

/// The stage whose workers are busy longest; behind the last one without a prediction.
std::size_t bottleneck(const Plan& plan) {
  if (plan.predicted.workers.empty()) return plan.stages.size();
  const auto busy = [&](const Stage& stage) {
    Seconds longest{};
    for (WorkerId worker : stage.workers)
      longest = std::max(longest, plan.predicted.workers[index(worker)].busy);
    return longest;
  };
  const auto slower = [&](const Stage& a, const Stage& b) { return busy(a) < busy(b); };
  return at(std::max_element(plan.stages.begin(), plan.stages.end(), slower) - plan.stages.begin());
}

/// `7 (2)`: micro-batches held, and how many the schedule's own windows hold where these are fewer.
std::string window_cell(int window, const std::vector<std::optional<int>>& classic, std::size_t stage) {
  std::string text = std::to_string(window);
  if (!classic.empty() && classic[stage]) text += " (" + std::to_string(*classic[stage]) + ")";
  return text;
}

/// What the brackets of the table mean, where it has some.
std::string windows_line(const Plan& plan) {
  if (plan::widened_from(plan).empty()) return "";
  return "held: micro-batches between forward and backward on a worker; in brackets what --window win would "
         "hold\n";
}

/// What stages of one row have in common: layers, replicas, blocks, busy time, its share, peak.
std::vector<std::string> common_cells(const Plan& plan, const Stage& stage, const std::string& part) {
  std::vector<std::string> cells{std::to_string(stage.layers.size()), std::to_string(stage.workers.size()),
                                 part};
  if (plan.predicted.workers.empty()) {
    cells.insert(cells.end(), 3, "-");
    return cells;
  }
  constexpr double kMebibyte = 1 << 20;
  const plan::WorkerPrediction& first = plan.predicted.workers[index(stage.workers.front())];
  const double share = plan.predicted.step.count() > 0 ? first.busy / plan.predicted.step : 0;
  cells.insert(cells.end(), {cli::cell(1e3 * first.busy.count()), cli::percent(share),
                             cli::cell(static_cast<double>(first.memory.peak.value) / kMebibyte)});
  return cells;
}

std::vector<std::string> split(std::string_view list, char separator) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(separator, begin), list.size());
    items.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace

std::string counted_runs(std::string_view list, char separator) {
  const std::vector<std::string> items = split(list, separator);
  std::string text;
  bool any = false;
  for (auto item = items.begin(); item != items.end();) {
    const auto end =
        std::ranges::find_if(item, items.end(), [&](const std::string& other) { return other != *item; });
    const bool counted = end - item >= kRun;
    any |= counted;
    if (counted) text += (text.empty() ? "" : ", ") + std::to_string(end - item) + " x " + *item;
    for (; !counted && item != end; ++item) text.append(text.empty() ? "" : ", ").append(*item);
    item = end;
  }
  return any ? text : std::string(list);
}

std::string blocks_text(const ModelGraph& model, std::span<const std::vector<std::string>> stages) {
  std::map<std::string_view, double> share;  // of its block
  for (const Block& block : blocks_of(model))
    for (int l = block.begin; l < block.end; ++l)
      share[model.layers[at(l)].name] = 1.0 / (block.end - block.begin);
  std::string text;
  for (const std::vector<std::string>& layers : stages) {
    double blocks = share.empty() ? static_cast<double>(layers.size()) : 0;
    for (const std::string& layer : layers)
      if (const auto found = share.find(layer); found != share.end()) blocks += found->second;
    const std::int64_t tenths = std::llround(10 * blocks);
    text += (text.empty() ? "" : "|") + std::to_string(tenths / 10) +
            (tenths % 10 != 0 ? "." + std::to_string(tenths % 10) : "");
  }
  return text;
}

std::string blocks_text(const ModelGraph& model, std::string_view layers) {
  std::vector<std::vector<std::string>> stages;
  auto next = model.layers.begin();
  for (const std::string& count : split(layers, '|')) {
    std::vector<std::string>& stage = stages.emplace_back();
    int left = 0;
    const char* const end = count.data() + count.size();
    if (const auto [rest, error] = std::from_chars(count.data(), end, left);
        error != std::errc() || rest != end)
      return std::string(layers);  // of a file, where it may be any text
    for (; left > 0 && next != model.layers.end(); --left) stage.push_back((next++)->name);
  }
  return blocks_text(model, stages);
}

std::string placed_text(const ModelGraph& model, std::string_view layers, const std::string& replicas) {
  const std::vector<std::string> each = split(replicas, '-');
  const bool equal = std::ranges::adjacent_find(each, std::ranges::not_equal_to()) == each.end();
  return counted_runs(blocks_text(model, layers), '|') + " on " +
         (equal ? each.front() : counted_runs(replicas, '-'));
}

std::string part_word(const ModelGraph& model) { return blocks_of(model).empty() ? "layers" : "blocks"; }

std::string stage_table(const Plan& plan, bool color, bool named) {
  std::vector<std::vector<std::string>> layers_of;
  for (const Stage& stage : plan.stages) layers_of.push_back(stage.layers);
  const std::vector<std::string> parts = split(blocks_text(plan.model, layers_of), '|');
  std::vector<cli::Column> columns{{"stage"}, {part_word(plan.model)}};
  if (named) columns = {{"stage"}, {"layers"}, {"from .. to", cli::Align::left}};
  const std::size_t own = columns.size();
  columns.insert(columns.end(), {{"devices", cli::Align::left},
                                 {"busy ms"},
                                 {"of step"},
                                 {"peak MiB"},
                                 {"held"},
                                 {"", cli::Align::left}});
  cli::Table table(std::move(columns));
  const std::vector<int> windows = plan::windows_of(plan);
  const std::vector<std::optional<int>> classic = plan::widened_from(plan);
  const std::size_t slowest = bottleneck(plan);
  const std::size_t stages = plan.stages.size();
  std::vector<std::vector<std::string>> common;
  for (std::size_t s = 0; s < stages; ++s) common.push_back(common_cells(plan, plan.stages[s], parts[s]));
  for (std::size_t s = 0, end = 0; s < stages; s = end) {
    for (end = s + 1; end < stages && common[end] == common[s] && s != slowest && end != slowest;) ++end;
    if (end - s < kAlike) end = s + 1;
    const std::size_t last = end - 1;
    const Stage& stage = plan.stages[s];
    const std::string layers = end == s + 1 ? plan::layer_range(stage)
                                            : stage.layers.front() + " .. " + plan.stages[last].layers.back();
    std::vector<std::string> cells{
        first_to_last(std::to_string(s), std::to_string(last)),
        common[s][named ? 0 : 2],
        layers,
        devices_of(plan, s, end),
        common[s][3],
        common[s][4],
        common[s][5],
        first_to_last(window_cell(windows[s], classic, s), window_cell(windows[last], classic, last))};
    if (own == 2) cells.erase(cells.begin() + 2);
    if (s == slowest) cells.push_back(cli::colored("<- bottleneck", color));
    table.add(std::move(cells));
  }
  return table.text() + windows_line(plan) + unused_text(plan);
}

}  // namespace pp::plan_tool
