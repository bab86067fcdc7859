#include "apps/profile/tables.h"

#include <algorithm>
#include <numeric>

#include "apps/cli/table.h"

namespace pp::profile_tool {
namespace {

constexpr double kWarnRatio = 0.10;  // the sum of the layers may differ by so much from the whole model

struct Row {
  const LayerProfile* layer;
  const LayerPoint* point;
  Seconds time() const { return point->forward.median + point->backward.median; }
  Bytes memory() const { return layer->parameters + point->saved; }
};

double ms(Seconds time) { return 1e3 * time.count(); }
double kib(Bytes bytes) { return static_cast<double>(bytes.value) / 1024; }

std::size_t size_position(const Profile& profile, std::optional<std::int64_t> wanted) {
  const auto& sizes = profile.micro_batch_sizes;
  if (!wanted) return sizes.size() - 1;
  const auto found = std::find(sizes.begin(), sizes.end(), *wanted);
  if (found == sizes.end()) {
    std::string list;
    for (std::int64_t size : sizes) list.append(list.empty() ? "" : ", ").append(std::to_string(size));
    throw Error(ErrorKind::usage,
                "--micro-batch-size: " + std::to_string(*wanted) + " was not measured; use one of " + list);
  }
  return static_cast<std::size_t>(found - sizes.begin());
}

std::vector<Row> rows_at(const Profile& profile, std::size_t position) {
  std::vector<Row> rows;
  for (const LayerProfile& layer : profile.layers) rows.push_back({&layer, &layer.points[position]});
  if (profile.loss) rows.push_back({&*profile.loss, &profile.loss->points[position]});
  return rows;
}

std::string optional_ms(const std::optional<TimeStat>& time) {
  return time ? cli::cell(ms(time->median)) : "-";
}

}  // namespace

std::string profile_summary(const Profile& profile) {
  std::int64_t parameters = 0;
  for (const LayerProfile& layer : profile.layers) parameters += layer.parameter_count;
  std::string text = profile.model.name + ": " + std::to_string(profile.layers.size()) + " layers, " +
                     std::to_string(parameters) + " parameters, " + std::string(name_of(profile.dtype)) + "\n";
  text += "measured on " + profile.device.name + ", " + std::to_string(profile.device.devices_busy) +
          " device(s) of " + std::to_string(profile.device.cores_per_device) + " core(s) busy\n";
  for (const WholeModelPoint& point : profile.whole_model) {
    const std::optional<double> ratio = layer_sum_ratio(profile, point.micro_batch_size);
    text += "  micro-batch " + std::to_string(point.micro_batch_size) + ": forward " +
            to_text(point.forward.median) + ", backward " + to_text(point.backward.median) + ", peak " +
            to_text(point.peak);
    if (ratio) {
      text += ", sum of layers / whole model " + cli::cell(*ratio, 3);
      if (std::abs(*ratio - 1) > kWarnRatio) text += " (over 10 % off: profile again on a quieter machine)";
    }
    text += '\n';
  }
  return text;
}

std::string layer_table(const Profile& profile, const LayerTableOptions& options) {
  const std::size_t position = size_position(profile, options.micro_batch_size);
  std::vector<Row> rows = rows_at(profile, position);
  const Seconds total = std::accumulate(rows.begin(), rows.end(), Seconds{},
                                        [](Seconds s, const Row& r) { return s + r.time(); });
  if (options.order == LayerOrder::time) {
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.time() > b.time(); });
  } else if (options.order == LayerOrder::memory) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.memory() > b.memory(); });
  }
  const std::size_t shown =
      options.limit > 0 ? std::min(rows.size(), static_cast<std::size_t>(options.limit)) : rows.size();

  cli::Table table({{"layer", cli::Align::left},
                    {"F ms"},
                    {"B ms"},
                    {"I ms"},
                    {"W ms"},
                    {"spread"},
                    {"weights KiB"},
                    {"output KiB"},
                    {"saved KiB"},
                    {"share"},
                    {"of F+B", cli::Align::left}});
  for (std::size_t r = 0; r < shown; ++r) {
    const LayerPoint& point = *rows[r].point;
    if (point.out_of_memory) {
      table.add({rows[r].layer->name, "out of memory"});
      continue;
    }
    const TimeStat& f = point.forward;
    const double share = total.count() > 0 ? rows[r].time() / total : 0;
    const double spread = f.samples > 0 && f.median.count() > 0 ? (f.high - f.low) / f.median / 2 : 0;
    table.add({rows[r].layer->name, cli::cell(ms(f.median)), cli::cell(ms(point.backward.median)),
               optional_ms(point.input_gradient), optional_ms(point.weight_gradient),
               f.samples > 0 ? "±" + cli::percent(spread) : "-", cli::cell(kib(rows[r].layer->parameters)),
               cli::cell(kib(point.output)), cli::cell(kib(point.saved)), cli::percent(share),
               cli::colored(cli::bar(share, 10), options.color)});
  }
  std::string text = "per micro-batch of " + std::to_string(profile.micro_batch_sizes[position]) +
                     " samples:\n" + table.text(120);
  if (shown < rows.size()) text += "(" + std::to_string(rows.size() - shown) + " more: pp-profile show)\n";
  return text;
}

}  // namespace pp::profile_tool
