// Rows, texts, legend and layout of the SVG pictures, and how operations look in every picture. The texts on
// the boxes let the eye count: all boxes of a kind in one form or none of them, the stage on all kinds or on
// none; where no kind has room, every second, fifth, tenth of the widest. Internal to the pictures.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/draw/timeline_rows.h"
#include "libplan/draw/timeline_svg.h"
#include "libplan/schedule/program.h"
#include "libplan/simulate/memory_walk.h"
#include "libprofile/core/svg_writer.h"

namespace pp::plan {

/// The workers of one row, which draws the first of them. Ascending.
struct RowGroup {
  std::vector<std::size_t> workers;
  /// They do the same at the same times, on micro-batches of their own, and hold the same. Else they have the
  /// same stages and no more.
  bool alike = true;
};

/// Up to this number of workers have a row each, unless they are replicas of one stage that are alike.
inline constexpr std::size_t kUnfolded = 16;

/// Every worker in one group; groups by their first worker. More than kUnfolded: those of the same stages are
/// one. `memory` empty: not compared. O(operations).
std::vector<RowGroup> row_groups(const std::vector<TimelineRow>& rows, std::span<const MemoryCurve> memory);

/// Two lines: stages with their layers, and workers with their devices; as much of it as is known.
struct RowName {
  std::string stages, workers;
};
RowName row_name(const RowGroup& group, const TimelineRow& row, const SvgOptions& options);

/// `text` with dots at its end where it is wider than `pixels`.
std::string cut_to(const std::string& text, double pixels);

inline constexpr double kSmallFont = 8;

struct BoxLabel {
  std::string text;
  bool small = false;
};

class BoxLabels {
 public:
  /// `groups`, `rows` and `boxes` belong together: boxes of each group's first worker. They must outlive this.
  BoxLabels(const std::vector<RowGroup>& groups, const std::vector<TimelineRow>& rows,
            const std::vector<std::vector<TimelineBox>>& boxes, double pixels_per_second);

  /// Of the box `box` of row `group`; empty: none.
  BoxLabel label(std::size_t group, const TimelineBox& box) const;

 private:
  /// What is written on the boxes of a kind.
  enum class Form {
    stage_and_number,
    small_stage_and_number,
    stage_alone,
    kind_and_number,
    number,
    small_number
  };
  struct Choice {
    Form form = Form::kind_and_number;
    int every = 1;  ///< 0: none
  };

  static bool names_stage(Form form);
  static bool is_small(Form form);
  std::string text(Form form, std::size_t group, const TimelineBox& box) const;
  std::string numbers(std::size_t group, const OpEvent& event) const;
  bool fits(Form form, std::size_t group, const TimelineBox& box, double times) const;
  /// Of the boxes of a kind, those that hold the form when each is `times` as wide.
  double share_that_fits(OpKind kind, Form form, double times) const;
  Choice choose(OpKind kind, bool with_stages) const;
  void number_some();

  const std::vector<RowGroup>& groups_;
  const std::vector<TimelineRow>& rows_;
  const std::vector<std::vector<TimelineBox>>& boxes_;
  double pixels_per_second_;
  bool chunks_ = false;
  std::map<OpKind, Choice> choices_;
};

/// Pixels. Both parts of the timeline share the time axis: names at the left, figures at the right of it.
struct SvgLayout {
  static constexpr double kLeft = 84;
  static constexpr double kRight = 112;

  double width = 0;
  Seconds makespan{};
  TimeAxis axis;
  double left = kLeft;  ///< more than kLeft where names are long

  double plot() const { return width - left - kRight; }
  double x(Seconds time) const {
    return left + (makespan.count() > 0 ? std::clamp(time / makespan, 0.0, 1.0) * plot() : 0);
  }
};

enum class Swatch { box, line, none };

struct LegendItem {
  std::string css;
  std::string label;
  Swatch swatch = Swatch::box;
  double x = 0, y = 0;  ///< of the label's line, set by place_legend()
};

/// One after the other from `y` on, in as many lines as `width` asks for; returns the last line's y.
double place_legend(std::span<LegendItem> items, double y, double width);
void draw_legend(SvgWriter& svg, std::span<const LegendItem> items);

struct OpStyle {
  OpKind kind;
  std::string_view name;
  char fill;        ///< behind the label where there is no colour
  Rgb color;        ///< black text is readable on it
  int ansi;         ///< the same in a terminal's 256 colours
  int ansi_second;  ///< for every other micro-batch, so that neighbours of one kind stand apart
};

/// The colours are those of Okabe and Ito, which people with any of the usual colour deficiencies tell apart.
inline constexpr std::array kOpStyles{
    OpStyle{OpKind::forward, "forward", '-', 0x56B4E9, 75, 117},
    OpStyle{OpKind::backward, "backward", '=', 0xE69F00, 172, 214},
    OpStyle{OpKind::input_gradient, "input gradient", '~', 0xF0E442, 220, 228},
    OpStyle{OpKind::weight_gradient, "weight gradient", '+', 0x00B386, 36, 79},
    OpStyle{OpKind::recompute, "recompute", ':', 0xCC79A7, 175, 218},
    OpStyle{OpKind::all_reduce, "all-reduce", '#', 0xE8743B, 167, 209},
    OpStyle{OpKind::tied_all_reduce, "tied all-reduce", '%', 0xF4A582, 173, 216},
    OpStyle{OpKind::update, "update", '*', 0xB0B0B0, 248, 252},
    OpStyle{OpKind::load, "weight load", '>', 0x9C9C5A, 143, 186},
    OpStyle{OpKind::evict, "weight evict", '<', 0x8FA8B8, 109, 152}};
static_assert(kOpStyles.size() == EnumNames<OpKind>::table.size(), "every kind of operation has a style");

constexpr const OpStyle& style_of(OpKind kind) {
  for (const OpStyle& style : kOpStyles) {
    if (style.kind == kind) return style;
  }
  return kOpStyles.back();
}

}  // namespace pp::plan
