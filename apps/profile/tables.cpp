#include "apps/profile/tables.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/model/product_flops.h"
#include "libprofile/core/text.h"

namespace pp::profile_tool {
namespace {

using profile::LayerRow;

double ms(Seconds time) { return 1e3 * time.count(); }
double kib(Bytes bytes) { return static_cast<double>(bytes.value) / 1024; }

std::string optional_ms(const std::optional<TimeStat>& time) {
  return time ? cli::cell(ms(time->median)) : "-";
}

/// `conv2 31.7 %, conv4 30.3 %, conv3 15.7 %`: the rows with the largest values, those of 0 left out.
template <class Value>
std::string largest(std::vector<LayerRow> rows, Value value) {
  constexpr std::size_t kNamed = 3;
  std::ranges::stable_sort(rows, std::greater<>(), value);
  double total = 0;
  for (const LayerRow& row : rows) total += value(row);
  std::string text;
  for (std::size_t r = 0; r < std::min(rows.size(), kNamed) && value(rows[r]) > 0; ++r) {
    text.append(text.empty() ? "" : ", ").append(rows[r].layer->name).append(" ");
    text += cli::percent(value(rows[r]) / total);
  }
  return text.empty() ? "none" : text;
}

double time_of(const LayerRow& row) { return row.time().count(); }
double memory_of(const LayerRow& row) { return static_cast<double>(row.memory().value); }

const std::vector<cli::Column> kFigures{{"layer", cli::Align::left},
                                        {"F ms"},
                                        {"B ms"},
                                        {"I ms"},
                                        {"W ms"},
                                        {"spread"},
                                        {"weights KiB"},
                                        {"output KiB"},
                                        {"saved KiB"}};

/// Says where they are not all trained.
std::string weights_cell(const LayerProfile& layer) {
  const std::string all = cli::cell(kib(layer.parameters));
  if (trained_bytes(layer) == layer.parameters) return all;
  return all + (trained_bytes(layer) == Bytes(0) ? " not trained" : " part trained");
}

std::vector<std::string> figures(const LayerRow& row) {
  const LayerPoint& point = *row.point;
  if (point.out_of_memory) return {row.layer->name, "out of memory", "", "", "", "", "", "", ""};
  const TimeStat& f = point.forward;
  const double spread = f.median.count() > 0 ? (f.high - f.low) / f.median / 2 : 0;
  return {row.layer->name,
          cli::cell(ms(f.median)),
          cli::cell(ms(point.backward.median)),
          optional_ms(point.input_gradient),
          optional_ms(point.weight_gradient),
          f.samples > 0 ? "±" + cli::percent(spread) : "-",
          weights_cell(*row.layer),
          cli::cell(kib(point.output)),
          cli::cell(kib(point.saved))};
}

/// Columns for each of the two bars: half of what the figures leave of `width`.
int bar_width(const std::vector<LayerRow>& rows, int width) {
  constexpr int kShortest = 6, kLongest = 40, kGap = 2;
  cli::Table table(kFigures);
  for (const LayerRow& row : rows) table.add(figures(row));
  return std::clamp((width - static_cast<int>(table.width())) / 2 - kGap, kShortest, kLongest);
}

std::string table_of(const std::vector<LayerRow>& rows, const LayerTableOptions& options) {
  std::vector<cli::Column> columns = kFigures;
  columns.push_back({"time", cli::Align::left});
  columns.push_back({"memory", cli::Align::left});
  cli::Table table(std::move(columns));
  const int cells = bar_width(rows, options.width);
  const auto longest = [&](auto value) {
    double most = 0;
    for (const LayerRow& row : rows) most = std::max(most, value(row));
    return most;
  };
  const double time = longest(time_of);
  const double memory = longest(memory_of);
  const auto bar = [&](double value, double most) {
    return cli::colored(cli::bar(most > 0 ? value / most : 0, cells), options.color);
  };
  for (const LayerRow& row : rows) {
    std::vector<std::string> line = figures(row);
    line.push_back(bar(time_of(row), time));
    line.push_back(bar(memory_of(row), memory));
    table.add(std::move(line));
  }
  return table.text(static_cast<std::size_t>(options.width));
}

/// How many operations have several kernels, and what the choice wins; empty: none has.
std::string kernels_line(const Profile& profile) {
  if (profile.kernels.empty()) return "";
  std::vector<double> gains;
  std::ptrdiff_t measured = 0;
  for (const KernelChoice& choice : profile.kernels) {
    if (!choice.measured) continue;
    ++measured;
    const auto [first, second] = *choice.measured;
    if (choice.kernel == Kernel::onednn) gains.push_back(first / second);
  }
  if (measured == 0) return "kernels: " + counted(std::ssize(profile.kernels), "product") + " by oneDNN\n";
  std::string text = "kernels: " + counted(measured, "operation") + " timed, " + std::to_string(gains.size()) +
                     " products faster by oneDNN";
  if (!gains.empty()) {
    std::ranges::nth_element(gains, gains.begin() + std::ssize(gains) / 2);
    text += " (" + cli::cell(gains[gains.size() / 2], 3) + " times in the median)";
  }
  return text + '\n';
}

}  // namespace

std::string profile_summary(const Profile& profile) {
  std::int64_t parameters = 0;
  Bytes frozen;
  for (const LayerProfile& layer : profile.layers) {
    parameters += layer.parameter_count;
    frozen += layer.parameters - trained_bytes(layer);
  }
  std::string text = cli::shown(profile.model.name) + ": " + std::to_string(profile.layers.size()) +
                     " layers, " + std::to_string(parameters) + " parameters, " +
                     (frozen > Bytes(0) ? to_text(frozen) + " of them not trained, " : "") +
                     std::string(name_of(profile.dtype)) +
                     (profile.products ? " with products in " + std::string(name_of(*profile.products)) : "");
  if (const std::int64_t tokens = tokens_per_sample(resolve(profile.model)); tokens > 0)
    text += ", samples of " + counted(tokens, "token");
  if (profile.memory_format != MemoryFormat::contiguous)
    text += ", " + std::string(name_of(profile.memory_format));
  if (profile.autocast) text += ", under autocast to " + std::string(name_of(*profile.autocast));
  if (profile.tensor_degree > 1)
    text += ", of each of " + std::to_string(profile.tensor_degree) + " devices that share every layer";
  if (const int context = profile.context_parallel.degree; context > 1)
    text += ", with a part of the positions in each of " + std::to_string(context) + " groups";
  if (const int experts = profile.expert_parallel.degree; experts > 1)
    text += ", with experts divided by " + std::to_string(experts);
  if (const int shards = profile.shard_group.degree; shards > 1)
    text += (profile.shard_group.sharding == Sharding::full ? ", with weights" : ", with gradients") +
            (" sharded by " + std::to_string(shards));
  text += "\n";
  text += (profile.mode == ProfileMode::estimated ? "estimated for " : "measured on ") +
          cli::shown(profile.device.name);
  if (profile.device.kind == DeviceKind::cpu) {
    text += ", " + counted(profile.device.devices_busy, "device") + " of " +
            counted(profile.device.cores_per_device, "core") + " busy";
  }
  text += '\n' + kernels_line(profile);
  for (const WholeModelPoint& point : profile.whole_model) {
    const std::optional<double> ratio = layer_sum_ratio(profile, point.micro_batch_size);
    text += "  micro-batch " + std::to_string(point.micro_batch_size) + ": forward " +
            to_text(point.forward.median) + ", backward " + to_text(point.backward.median) + ", peak " +
            to_text(point.peak);
    if (ratio) text += ", sum of layers / whole model " + cli::cell(*ratio, 3);
    text += '\n';
  }
  return text;
}

std::string layer_table(const Profile& profile, const LayerTableOptions& options) {
  const std::size_t position = profile::size_position(profile, options.micro_batch_size);
  const std::vector<LayerRow> all = profile::layer_rows(profile, position, options.order);
  std::vector<LayerRow> rows = all;
  if (options.limit > 0) rows.resize(std::min(rows.size(), static_cast<std::size_t>(options.limit)));
  std::string text = "per micro-batch of " + std::to_string(profile.micro_batch_sizes[position]) +
                     " samples:\n" + table_of(rows, options);
  if (rows.size() < all.size()) text += "(" + std::to_string(all.size() - rows.size()) + " more layers)\n";
  text += "\ntime " + to_text(profile::total_time(all)) + ", most of it: " + largest(all, time_of) + '\n';
  text += "memory " + to_text(profile::total_memory(all)) + ", most of it: " + largest(all, memory_of) + '\n';
  return text;
}

void tell_of_scores(const ModelGraph& model) {
  if (const std::string kept = scores_kept(resolve(model)); !kept.empty()) cli::inform(kept);
}

void write_profile(const Profile& profile, cli::Output& output, const cli::Shell& shell) {
  const std::string text = dump_json(to_json(profile));
  output.write(text);
  if (!profile.trainer || profile.trainer->attention == AttentionKernel::by_model)
    tell_of_scores(profile.model);
  if (output.is_stdout() || (shell.quiet && output.wanted() && !shell.json)) return;
  if (shell.json) {
    std::cout << text;
    return;
  }
  LayerTableOptions table;
  table.limit = 12;
  table.width = cli::terminal_width();
  table.color = cli::use_color(shell);
  std::cout << profile_summary(profile) << '\n' << layer_table(profile, table);
}

}  // namespace pp::profile_tool
