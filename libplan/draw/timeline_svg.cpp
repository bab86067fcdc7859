#include "libplan/draw/timeline_svg.h"

#include <array>
#include <charconv>
#include <set>

#include "libplan/draw/svg_labels.h"
#include "libplan/draw/svg_memory.h"
#include "libplan/draw/timeline_rows.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr double kLeastWidth = 400;
constexpr double kMostBoxes = 10000;       ///< wide enough to be drawn alone, of all workers together
constexpr std::size_t kMostArrows = 400;   ///< more are a grey cloud
constexpr std::size_t kArrowWorkers = 16;  ///< with more, rows are too thin for arrows between them
constexpr double kOutlined = 3;            ///< pixels; a white outline would hide what is thinner
constexpr double kFirstLegendLine = 72;
constexpr double kAxisHeight = 34;  ///< from the legend to the first row
constexpr double kMostNames = 230;  ///< pixels for the names of the rows
constexpr double kTwoLines = 30;    ///< rows as high as this have both lines of their names

constexpr std::string_view kStyle = R"(text{font-size:11px;fill:#222;pointer-events:none}
.h{font-size:16px;font-weight:bold}
.s{font-size:12px;fill:#555}
.c{fill:#000}
.n{fill:#000;font-size:8px}
.w{fill:#777}
.bg{fill:#f4f4f4}
.idle{fill:url(#hatch);stroke:#ccc;stroke-width:.5}
.grid{stroke:#000;stroke-opacity:.13}
.act{stroke:#222;stroke-width:.8;stroke-opacity:.6}
.grad{stroke:#222;stroke-width:.8;stroke-opacity:.6;stroke-dasharray:3 2}
)";
constexpr std::string_view kDefinitions =
    R"(<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#f7f7f7"/><path d="M0 6L6 0" stroke="#d0d0d0" stroke-width="1"/></pattern></defs>
<rect width="100%" height="100%" fill="#fff"/>
)";

struct RowSize {
  double height, gap;
};
RowSize row_size(std::size_t workers, bool arrows) {
  if (workers <= 8) return {30, arrows ? 14.0 : 6.0};
  if (workers <= 32) return {20, arrows ? 9.0 : 4.0};
  return {workers <= 128 ? 10.0 : 5.0, 2};
}

/// `F0`: the kind's letter and which of the worker's stages.
std::string css_of(OpKind kind, int chunk) { return std::string(name_of(kind)) + std::to_string(chunk); }

/// Later stages of a worker are lighter.
std::string box_css(std::span<const OpKind> kinds, int chunks) {
  std::string css;
  for (const OpKind kind : kinds) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const double white = chunks > 1 ? 0.6 * chunk / (chunks - 1) : 0;
      css += "." + css_of(kind, chunk) + "{fill:" + svg_color(lighter(style_of(kind).color, white)) +
             ";stroke:#fff;stroke-width:.6}\n";
    }
  }
  return css + ".j{stroke:none}\n";
}

bool is_run(const TimelineBox& box) { return box.count > 1 && box.end > box.start; }

class Picture {
 public:
  Picture(const SimulationResult& result, std::span<const MemoryCurve> memory, const SvgOptions& options)
      : result_(result),
        memory_(memory.size() == result.busy.size() && highest(memory) > Bytes(0)
                    ? memory
                    : std::span<const MemoryCurve>()),
        options_(options),
        rows_(timeline_rows(result)),
        groups_(row_groups(rows_, memory_)),
        kinds_(kinds_of(result)),
        chunks_(most_chunks(rows_)),
        arrows_(result.messages.size() <= kMostArrows && groups_.size() <= kArrowWorkers),
        size_(row_size(groups_.size(), arrows_)),
        layout_{std::max(options.width, kLeastWidth), result.makespan, {}} {
    name_rows();
    common_ = {result.makespan, memory_.empty() ? Bytes(0) : memory_scale(memory_bands()), layout_.left,
               chunks_, layout_.width};
  }

  /// What pictures that are compared must have in common.
  struct Common {
    Seconds length{};
    Bytes memory;     ///< the full height
    double left = 0;  ///< where the time axis begins
    int chunks = 1;
    double width = 0;
    void join(const Common& other) {
      length = std::max(length, other.length);
      memory = std::max(memory, other.memory);
      left = std::max(left, other.left);
      chunks = std::max(chunks, other.chunks);
      width = std::max(width, other.width);
    }
  };
  const Common& common() const { return common_; }

  void lay_out(const Common& common) {
    common_ = common;
    layout_.width = common.width;
    layout_.makespan = common.length;
    layout_.left = common.left;
    layout_.axis = time_axis(layout_.makespan, static_cast<int>(layout_.plot() / 70) + 1);
    const double least_pixels =
        std::max(1.0, layout_.plot() * static_cast<double>(groups_.size()) / kMostBoxes);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      boxes_.push_back(timeline_boxes(row(g), layout_.makespan * (least_pixels / layout_.plot())));
    legend_ = legend_items();
    top_ = place_legend(legend_, kFirstLegendLine, layout_.width) + kAxisHeight;
    bottom_ = top_ + static_cast<double>(groups_.size()) * (size_.height + size_.gap);
  }

  /// The rest is for a picture that has been laid out.
  double height() const { return bottom_ + (memory_.empty() ? 0 : memory_height(groups_.size())) + 12; }
  const std::vector<OpKind>& kinds() const { return kinds_; }

  void draw(SvgWriter& svg) const {
    heading(svg);
    draw_legend(svg, legend_);
    for (std::size_t g = 0; g < groups_.size(); ++g) background(svg, g);
    axis(svg);
    const double pixels_per_second =
        layout_.makespan.count() > 0 ? layout_.plot() / layout_.makespan.count() : 0;
    const BoxLabels labels(groups_, rows_, boxes_, pixels_per_second);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const TimelineBox& box : boxes_[g]) draw_box(svg, g, box);
    }
    for (std::size_t g = 0; g < groups_.size() && size_.height > kSvgFont;
         ++g) {  // some are wider than their box
      for (const TimelineBox& box : boxes_[g]) draw_label(svg, g, box, labels.label(g, box));
    }
    if (arrows_) messages(svg);
    if (!memory_.empty()) draw_memory(svg, layout_, memory_bands(), bottom_, common_.memory);
  }

 private:
  /// Of a row of the picture: that of its first worker.
  const TimelineRow& row(std::size_t group) const { return rows_[groups_[group].workers.front()]; }

  /// Names take what they need of the left margin, up to a limit.
  void name_rows() {
    row_of_.resize(rows_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      names_.push_back(row_name(groups_[g], row(g), options_));
      const double width = std::max(text_width(names_[g].stages), text_width(names_[g].workers)) + 16;
      layout_.left = std::max(layout_.left, std::min(width, kMostNames));
      for (const std::size_t worker : groups_[g].workers) row_of_[worker] = g;
    }
  }

  std::vector<MemoryBand> memory_bands() const {
    std::vector<MemoryBand> bands;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::size_t worker = groups_[g].workers.front();
      bands.push_back(
          {names_[g].workers, &memory_[worker], options_.limits.empty() ? Bytes(0) : options_.limits[worker]});
    }
    return bands;
  }

  std::vector<LegendItem> legend_items() const {
    std::vector<LegendItem> items;
    for (const OpKind kind : kinds_) {
      items.push_back({css_of(kind, 0), std::string(name_of(kind)) + " " + std::string(style_of(kind).name)});
    }
    if (chunks_ > 1) items.push_back({css_of(kinds_.front(), chunks_ - 1), "lighter: a worker's later stages"});
    items.push_back({"idle", "idle (bubble)"});
    if (arrows_ && !result_.messages.empty()) {
      items.push_back({"act", "activation sent", Swatch::line});
      items.push_back({"grad", "gradient sent", Swatch::line});
    }
    if (std::ranges::any_of(boxes_, [](const auto& row) { return std::ranges::any_of(row, is_run); })) {
      items.push_back({"", "where operations are too short to draw: their shares, stacked", Swatch::none});
    }
    return items;
  }

  void heading(SvgWriter& svg) const {
    constexpr double kTitleFont = 17;  // of 16 pixels, in bold
    const double room = (layout_.width - SvgLayout::kLeft) * kSvgFont / kTitleFont;
    svg.text(SvgLayout::kLeft, 26, "h", cut_to(options_.title, room));
    svg.text(SvgLayout::kLeft, 46, "s",
             "makespan " + pp::to_text(result_.makespan) + ", bubble " + percent_text(result_.bubble_fraction) +
                 " (1 - busy / (workers x makespan)), " + std::to_string(rows_.size()) + " workers, " +
                 std::to_string(result_.ops.size()) + " operations, " +
                 std::to_string(result_.messages.size()) + " messages");
  }

  double y(std::size_t group) const { return top_ + static_cast<double>(group) * (size_.height + size_.gap); }

  /// The whole row as idle time; operations lie on it.
  void background(SvgWriter& svg, std::size_t group) const {
    const double idle = idle_share(row(group), result_.makespan);
    const RowName& name = names_[group];
    svg.rect(layout_.left, y(group), layout_.x(result_.makespan) - layout_.left, size_.height, "idle",
             name.workers + "\n" + name.stages + "\nbusy " + pp::to_text(row(group).busy) + ", idle " +
                 percent_text(idle));
    const bool crowded = size_.height < kSvgFont;
    if (crowded && group % 5 != 0) return;
    const bool two_lines = size_.height >= kTwoLines;
    const double baseline = y(group) + size_.height / 2 + (two_lines ? -2 : 4);
    const double room = layout_.left - 12;
    svg.text(layout_.left - 8, baseline, "t", cut_to(two_lines ? name.stages : name.workers, room),
             TextAnchor::end);
    if (two_lines) svg.text(layout_.left - 8, baseline + 13, "w", cut_to(name.workers, room), TextAnchor::end);
    svg.text(layout_.width - SvgLayout::kRight + 8, y(group) + size_.height / 2 + 4, "t",
             "idle " + percent_text(idle));
  }

  void axis(SvgWriter& svg) const {
    for (int tick = 0; tick <= layout_.axis.last; ++tick) {
      const double x = layout_.x(layout_.axis.time(tick));
      svg.line(x, top_ - 5, x, bottom_ - size_.gap, "grid");
      svg.text(x, top_ - 9, "t", layout_.axis.label(tick), TextAnchor::middle);
    }
    svg.text(layout_.width - SvgLayout::kRight + 8, top_ - 9, "t", layout_.axis.unit);
  }

  void draw_box(SvgWriter& svg, std::size_t group, const TimelineBox& box) const {
    const double x = layout_.x(box.start);
    const double width = std::max(layout_.x(box.end) - x, 1.0);
    if (is_run(box)) return draw_run(svg, group, box, x, width);
    const std::string css = css_of(box.op->op.kind, row(group).chunk(box.op->op.stage));
    svg.rect(x, y(group), width, size_.height, width < kOutlined ? css + " j" : css, tooltip(group, box));
  }

  void draw_label(SvgWriter& svg, std::size_t group, const TimelineBox& box, const BoxLabel& label) const {
    if (label.text.empty()) return;
    svg.text((layout_.x(box.start) + layout_.x(box.end)) / 2,
             y(group) + size_.height / 2 + (label.small ? 3 : 4), label.small ? "n" : "c", label.text,
             TextAnchor::middle);
  }

  /// Kinds on top of each other, each as high as its share of the time; above them it is idle.
  void draw_run(SvgWriter& svg, std::size_t group, const TimelineBox& box, double x, double width) const {
    const int chunk = row(group).chunk(box.op->op.stage);
    double top = y(group) + size_.height;
    for (const OpKind kind : kinds_) {
      const double height = box.busy[at(kind)] / (box.end - box.start) * size_.height;
      if (height <= 0) continue;
      top -= height;
      svg.rect(x, top, width, height, css_of(kind, chunk) + " j", tooltip(group, box));
    }
  }

  std::string tooltip(std::size_t group, const TimelineBox& box) const {
    const std::string times = "worker " + std::to_string(groups_[group].workers.front()) + ", " +
                              in_unit(box.start) + " to " + in_unit(box.end) + ' ' +
                              std::string(layout_.axis.unit);
    if (box.count > 1) {
      return std::to_string(box.count) + " operations, mostly " + std::string(style_of(box.op->op.kind).name) +
             "\n" + times;
    }
    return to_text(box.op->op) + " " + std::string(style_of(box.op->op.kind).name) + "\n" + times + ": " +
           pp::to_text(box.end - box.start);
  }

  /// Six significant digits.
  std::string in_unit(Seconds time) const {
    std::array<char, 32> text{};
    const double value = time.count() / layout_.axis.unit_seconds;
    return {text.data(),
            std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6).ptr};
  }

  /// From the edge of the sender's row when the transfer starts to the receiver's when it ends.
  void messages(SvgWriter& svg) const {
    for (const MessageEvent& message : result_.messages) {
      const std::size_t from_row = row_of_[index(message.from)];
      const std::size_t to_row = row_of_[index(message.to)];
      if (from_row == to_row) continue;
      const bool down = to_row > from_row;
      const double from = y(from_row) + (down ? size_.height : 0);
      const double to = y(to_row) + (down ? 0 : size_.height);
      const bool forward = message.producer.kind == OpKind::forward;
      const std::string_view css = forward ? "act" : "grad";
      const double x = layout_.x(message.end);
      svg.line(layout_.x(message.start), from, x, to, css,
               std::string(forward ? "activation of " : "gradient of ") + to_text(message.producer) +
                   "\nworker " + std::to_string(number(message.from)) + " to " +
                   std::to_string(number(message.to)) + ", " + to_text(message.bytes) + ", " +
                   pp::to_text(message.end - message.start));
      const double tip = to + (down ? -4 : 4);
      svg.path("M" + svg_number(x) + ' ' + svg_number(to) + "L" + svg_number(x - 2.5) + ' ' + svg_number(tip) +
                   "h5Z",
               "tip");
    }
  }

  const SimulationResult& result_;
  const std::span<const MemoryCurve> memory_;
  const SvgOptions& options_;
  const std::vector<TimelineRow> rows_;  ///< per worker
  const std::vector<RowGroup> groups_;   ///< per row of the picture
  const std::vector<OpKind> kinds_;
  const int chunks_;
  const bool arrows_;
  const RowSize size_;
  SvgLayout layout_;
  Common common_;
  std::vector<RowName> names_;       ///< per row of the picture, as boxes_
  std::vector<std::size_t> row_of_;  ///< per worker
  std::vector<std::vector<TimelineBox>> boxes_;
  std::vector<LegendItem> legend_;
  double top_ = 0;     ///< of the first row
  double bottom_ = 0;  ///< of the last row, its gap included
};

}  // namespace

std::string timelines_svg(std::span<const SvgTimeline> timelines) {
  std::vector<Picture> pictures;
  pictures.reserve(timelines.size());
  for (const SvgTimeline& timeline : timelines)
    pictures.emplace_back(*timeline.result, timeline.memory, timeline.options);
  Picture::Common common;
  for (const Picture& picture : pictures) common.join(picture.common());
  std::set<OpKind> kinds;
  double height = 0;
  for (Picture& picture : pictures) {
    picture.lay_out(common);
    kinds.insert(picture.kinds().begin(), picture.kinds().end());
    height += picture.height();
  }
  const std::vector<OpKind> all(kinds.begin(), kinds.end());
  SvgWriter svg(common.width, height, std::string(kStyle) + box_css(all, common.chunks) + memory_css());
  svg.raw(kDefinitions);
  double y = 0;
  for (const Picture& picture : pictures) {
    if (y > 0) svg.raw("<g transform=\"translate(0 " + svg_number(y) + ")\">\n");
    picture.draw(svg);
    if (y > 0) svg.raw("</g>\n");
    y += picture.height();
  }
  return std::move(svg).finish();
}

std::string timeline_svg(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const SvgOptions& options) {
  const SvgTimeline timeline{&result, memory, options};
  return timelines_svg(std::span(&timeline, 1));
}

}  // namespace pp::plan
