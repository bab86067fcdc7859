// The texts on the boxes of the SVG timeline, so that the eye can count: all boxes of a kind in one form or
// none of them, the stage on all kinds or on none; where no kind has room, every second, fifth, tenth of the
// widest. Internal to it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "libplan/draw/svg_names.h"
#include "libplan/draw/timeline_boxes.h"

namespace pp::plan {

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

}  // namespace pp::plan
