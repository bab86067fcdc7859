#include "libprofile/report/layer_svg.h"

#include <algorithm>
#include <array>
#include <functional>

#include "libprofile/core/svg_writer.h"
#include "libprofile/core/text.h"
#include "libprofile/report/layer_rows.h"

namespace pp::profile {
namespace {

constexpr double kLeastWidth = 500;
constexpr double kMargin = 16;
constexpr double kTop = 96;  ///< of the first row
constexpr double kRow = 18;
constexpr double kBar = 12;
constexpr double kMostNames = 220;
constexpr std::size_t kMostRows = 60;  ///< more layers are folded into blocks
constexpr double kValue = 72;          ///< behind the longest bar, for its figure
constexpr double kShortest = 0.5;      ///< a bar that is there can be seen

constexpr std::string_view kStyle = R"(text{font-size:11px;fill:#222}
.h{font-size:16px;font-weight:bold}
.s{font-size:12px;fill:#555}
.page{fill:#fff}
.axis{stroke:#000;stroke-opacity:.3}
.forward{fill:#56b4e9}
.backward{fill:#e69f00}
.weights{fill:#5e6b7a}
.saved{fill:#7b5ea7}
)";

/// A part of a bar; its name is its class in the style.
struct Part {
  std::string_view name;
  double value = 0;
};

/// Where bars of one unit stand.
struct Panel {
  double x = 0, length = 0;
  double longest = 0;  ///< value of a bar of full length

  double pixels(double value) const { return longest > 0 ? value / longest * length : 0; }
};

std::string time_line(std::string_view name, const TimeStat& time) {
  std::string text = "\n" + std::string(name) + ' ' + to_text(time.median);
  if (time.samples > 0) text += " (" + to_text(time.low) + " to " + to_text(time.high) + ")";
  return text;
}

/// What a block of layers sums up to, and which of them is the largest.
template <class Value>
auto sum_of(const LayerBlock& block, Value value) {
  decltype(value(block.rows.front())) sum{};
  for (const LayerRow& row : block.rows) sum += value(row);
  return sum;
}
template <class Value>
const std::string& largest_of(const LayerBlock& block, Value value) {
  return std::ranges::max_element(block.rows, {}, value)->layer->name;
}

Seconds forward_of(const LayerRow& row) { return row.point->forward.median; }
Seconds backward_of(const LayerRow& row) { return row.point->backward.median; }
Bytes weights_of(const LayerRow& row) { return row.layer->parameters; }
Bytes saved_of(const LayerRow& row) { return row.point->saved; }

std::string time_tooltip(const LayerBlock& block) {
  if (block.folded()) {
    return block.name + "\nforward " + to_text(sum_of(block, forward_of)) + "\nbackward " +
           to_text(sum_of(block, backward_of)) + "\nlongest: " + largest_of(block, &LayerRow::time);
  }
  const LayerRow& row = block.rows.front();
  const LayerPoint& point = *row.point;
  std::string text =
      row.layer->name + time_line("forward", point.forward) + time_line("backward", point.backward);
  if (point.input_gradient) text += time_line("input gradient", *point.input_gradient);
  if (point.weight_gradient) text += time_line("weight gradient", *point.weight_gradient);
  return text;
}

std::string memory_tooltip(const LayerBlock& block) {
  if (block.folded()) {
    return block.name + "\nweights " + to_text(sum_of(block, weights_of)) + "\nsaved activations " +
           to_text(sum_of(block, saved_of)) + "\nlargest: " + largest_of(block, &LayerRow::memory);
  }
  const LayerRow& row = block.rows.front();
  const LayerPoint& point = *row.point;
  return row.layer->name + "\nweights " + to_text(row.layer->parameters) +
         (row.layer->trained ? ", trained " + to_text(*row.layer->trained) : "") + "\nsaved activations " +
         to_text(point.saved) + "\noutput " + to_text(point.output) + "\ntransient memory " +
         to_text(point.workspace);
}

double bytes(Bytes size) { return static_cast<double>(size.value); }

class LayerChart {
 public:
  LayerChart(const Profile& profile, const LayerSvgOptions& options)
      : profile_(profile),
        size_(size_position(profile, options.micro_batch_size)),
        rows_(layer_rows(profile, size_, options.order)),
        time_(total_time(rows_)),
        memory_(total_memory(rows_)),
        width_(std::max(options.width, kLeastWidth)) {
    const std::size_t all = rows_.size();
    if (options.limit > 0) rows_.resize(std::min(all, static_cast<std::size_t>(options.limit)));
    left_out_ = all - rows_.size();
    blocks_ = layer_blocks(rows_, options.limit > 0 ? rows_.size() : kMostRows, options.order);
    double names = 0;
    for (const LayerBlock& block : blocks_) names = std::max(names, text_width(block.name));
    const double first = kMargin + std::min(names, kMostNames) + 8;
    const double panel = (width_ - kMargin - first) / 2;
    times_ = {first, panel - kValue, 0};
    memories_ = {first + panel, panel - kValue, 0};
    for (const LayerBlock& block : blocks_) {
      times_.longest = std::max(times_.longest, sum_of(block, std::mem_fn(&LayerRow::time)).count());
      memories_.longest = std::max(memories_.longest, bytes(sum_of(block, std::mem_fn(&LayerRow::memory))));
    }
  }

  std::string text() const {
    const double height = kTop + kRow * static_cast<double>(blocks_.size()) + kMargin;
    SvgWriter svg(width_, height, kStyle);
    svg.rect(0, 0, width_, height, "page");
    svg.text(kMargin, 28, "h", profile_.model.name);
    svg.text(kMargin, 48, "s", subtitle());
    legend(svg, times_, {"forward", "backward"}, to_text(time_));
    legend(svg, memories_, {"weights", "saved"}, to_text(memory_));
    for (std::size_t b = 0; b < blocks_.size(); ++b) row(svg, blocks_[b], kTop + kRow * static_cast<double>(b));
    for (const Panel& panel : {times_, memories_})
      svg.line(panel.x, kTop - 4, panel.x, height - kMargin, "axis");
    return std::move(svg).finish();
  }

 private:
  std::string subtitle() const {
    std::string text = "micro-batches of " + std::to_string(profile_.micro_batch_sizes[size_]) + ", " +
                       std::string(name_of(profile_.dtype)) + ", " + profile_.device.name;
    if (left_out_ > 0) text += "; " + counted(static_cast<std::int64_t>(left_out_), "more layer");
    if (blocks_.size() < rows_.size())
      text += "; " + std::to_string(rows_.size()) + " layers in " + std::to_string(blocks_.size()) + " rows";
    return text;
  }

  void legend(SvgWriter& svg, const Panel& panel, std::array<std::string_view, 2> names,
              const std::string& total) const {
    double x = panel.x;
    for (const std::string_view name : names) {
      svg.rect(x, kTop - 26, 10, 10, name);
      svg.text(x + 14, kTop - 17, "t", name);
      x += 14 + text_width(name) + 10;
    }
    svg.text(x, kTop - 17, "t", "all layers: " + total);
  }

  void row(SvgWriter& svg, const LayerBlock& block, double y) const {
    svg.text(times_.x - 8, y + kBar - 2, "t", shortened(block.name), TextAnchor::end);
    if (block.out_of_memory()) {
      svg.text(times_.x + 4, y + kBar - 2, "t", "out of memory");
      return;
    }
    bar(svg, times_, y,
        {Part{"forward", sum_of(block, forward_of).count()},
         Part{"backward", sum_of(block, backward_of).count()}},
        time_tooltip(block), to_text(sum_of(block, std::mem_fn(&LayerRow::time))));
    bar(svg, memories_, y,
        {Part{"weights", bytes(sum_of(block, weights_of))}, Part{"saved", bytes(sum_of(block, saved_of))}},
        memory_tooltip(block), to_text(sum_of(block, std::mem_fn(&LayerRow::memory))));
  }

  static std::string shortened(const std::string& name) {
    if (text_width(name) <= kMostNames) return name;
    return std::string(beginning(name, static_cast<std::size_t>(kMostNames / text_width("m")) - 3)) + "...";
  }

  static void bar(SvgWriter& svg, const Panel& panel, double y, const std::array<Part, 2>& parts,
                  const std::string& tooltip, const std::string& figure) {
    double x = panel.x;
    for (const Part& part : parts) {
      if (part.value <= 0) continue;
      const double length = std::max(panel.pixels(part.value), kShortest);
      svg.rect(x, y, length, kBar, part.name, tooltip);
      x += length;
    }
    svg.text(x + 5, y + kBar - 2, "t", figure);
  }

  const Profile& profile_;
  std::size_t size_;
  std::vector<LayerRow> rows_;
  std::vector<LayerBlock> blocks_;  ///< of the rows
  Seconds time_;                    ///< of all layers, also those that are not drawn
  Bytes memory_;
  double width_;
  std::size_t left_out_ = 0;
  Panel times_, memories_;
};

}  // namespace

std::string layer_svg(const Profile& profile, const LayerSvgOptions& options) {
  return LayerChart(profile, options).text();
}

}  // namespace pp::profile
