#include "libplan/draw/svg_labels.h"

#include <algorithm>
#include <array>

#include "libprofile/core/index.h"
#include "libprofile/core/svg_writer.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

/// Of the boxes of a kind, so many must hold a form; the rest stay empty.
constexpr double kMostlyFits = 0.9;

bool equal(const TimelineRow& a, const TimelineRow& b) {
  const auto same = [](const OpEvent* x, const OpEvent* y) {
    return x->op.kind == y->op.kind && x->op.stage == y->op.stage && x->start == y->start && x->end == y->end;
  };
  return a.stages == b.stages && std::ranges::equal(a.ops, b.ops, same);
}

/// `worker 3`, `workers 0, 2`, `workers 0 to 3`.
std::string workers_text(const std::vector<std::size_t>& workers) {
  if (workers.size() == 1) return "worker " + std::to_string(workers.front());
  if (workers.size() > 2 && workers.back() - workers.front() + 1 == workers.size())
    return "workers " + std::to_string(workers.front()) + " to " + std::to_string(workers.back());
  if (workers.size() > 4) {
    return "workers " + std::to_string(workers[0]) + ", " + std::to_string(workers[1]) + " .. " +
           std::to_string(workers.back());
  }
  std::string text = "workers ";
  for (const std::size_t worker : workers)
    text.append(worker == workers.front() ? "" : ", ").append(std::to_string(worker));
  return text;
}

/// `, cpu:0`; of several workers the first and the last.
std::string devices_text(const std::vector<std::size_t>& workers, const SvgOptions& options) {
  if (options.devices.empty()) return "";
  const std::string& first = options.devices[workers.front()];
  return workers.size() == 1 ? ", " + first : ", " + first + " .. " + options.devices[workers.back()];
}

std::string group_text(const RowGroup& group, const SvgOptions& options) {
  if (group.workers.size() <= 2 && group.alike)
    return workers_text(group.workers) + devices_text(group.workers, options);
  if (group.alike) return std::to_string(group.workers.size()) + " replicas: " + workers_text(group.workers);
  return std::to_string(group.workers.size()) + " replicas, drawn: " + workers_text({group.workers.front()}) +
         devices_text({group.workers.front()}, options);
}

constexpr double kSwatch = 16;
constexpr double kLine = 20;

double label_offset(const LegendItem& item) { return item.swatch == Swatch::none ? 0 : kSwatch + 6; }

}  // namespace

BoxLabels::BoxLabels(const std::vector<RowGroup>& groups, const std::vector<TimelineRow>& rows,
                     const std::vector<std::vector<TimelineBox>>& boxes, double pixels_per_second)
    : groups_(groups),
      rows_(rows),
      boxes_(boxes),
      pixels_per_second_(pixels_per_second),
      chunks_(most_chunks(rows) > 1) {
  for (const std::vector<TimelineBox>& row : boxes_) {
    for (const TimelineBox& box : row) choices_.try_emplace(box.op->op.kind);
  }
  // What the eye compares is written alike: stages on the boxes of every kind, or of none.
  const bool with_stages =
      chunks_ && std::ranges::all_of(choices_, [&](const auto& entry) {
        return !has_micro_batch(entry.first) || names_stage(choose(entry.first, true).form);
      });
  bool numbered = false;
  for (auto& [kind, choice] : choices_) {
    choice = choose(kind, with_stages);
    numbered |= has_micro_batch(kind) && choice.every > 0;
  }
  if (!numbered) number_some();
}

bool BoxLabels::names_stage(Form form) { return form <= Form::stage_alone; }

bool BoxLabels::is_small(Form form) {
  return form == Form::small_stage_and_number || form == Form::stage_alone || form == Form::small_number;
}

/// `3`; of several equal workers `0-3`, or `0,4`.
std::string BoxLabels::numbers(std::size_t group, const OpEvent& event) const {
  if (!groups_[group].alike) return std::to_string(event.op.micro_batch);
  const std::vector<std::size_t>& workers = groups_[group].workers;
  const std::vector<const OpEvent*>& first = rows_[workers.front()].ops;
  const auto position = std::ranges::lower_bound(first, event.start, {}, &OpEvent::start);
  const auto place = std::find(position, first.end(), &event) - first.begin();
  std::vector<int> found;
  found.reserve(workers.size());
  for (const std::size_t worker : workers) found.push_back(rows_[worker].ops[at(place)]->op.micro_batch);
  std::ranges::sort(found);
  if (found.size() == 1) return std::to_string(found.front());
  const bool run = found.back() - found.front() + 1 == static_cast<int>(found.size());
  return std::to_string(found.front()) + (run ? "-" : "..") + std::to_string(found.back());
}

std::string BoxLabels::text(Form form, std::size_t group, const TimelineBox& box) const {
  const OpEvent& event = *box.op;
  const std::string kind(name_of(event.op.kind));
  if (!has_micro_batch(event.op.kind)) return names_stage(form) ? to_text(event.op) : kind;
  std::string number = numbers(group, event);
  const std::string stage = std::to_string(pp::number(event.op.stage));
  switch (form) {
    case Form::stage_and_number:
    case Form::small_stage_and_number: return kind + stage + '.' + number;
    case Form::stage_alone: return stage + '.' + number;
    case Form::kind_and_number: return kind + number;
    case Form::number:
    case Form::small_number: break;
  }
  return number;
}

bool BoxLabels::fits(Form form, std::size_t group, const TimelineBox& box, double times) const {
  const double width = (box.end - box.start).count() * pixels_per_second_ * times - 2;
  const double font = is_small(form) ? kSmallFont : kSvgFont;
  return text_width(text(form, group, box), font) <= width;
}

double BoxLabels::share_that_fits(OpKind kind, Form form, double times) const {
  int all = 0;
  int fitting = 0;
  for (std::size_t g = 0; g < boxes_.size(); ++g) {
    for (const TimelineBox& box : boxes_[g]) {
      if (box.count > 1 || box.op->op.kind != kind) continue;
      ++all;
      fitting += fits(form, g, box, times) ? 1 : 0;
    }
  }
  return all > 0 ? fitting / static_cast<double>(all) : 0.0;
}

BoxLabels::Choice BoxLabels::choose(OpKind kind, bool with_stages) const {
  for (const Form form : {Form::stage_and_number, Form::small_stage_and_number, Form::stage_alone,
                          Form::kind_and_number, Form::number, Form::small_number}) {
    if (names_stage(form) && !with_stages) continue;
    if (share_that_fits(kind, form, 1) >= kMostlyFits) return {form, 1};
  }
  return {Form::small_number, has_micro_batch(kind) ? 0 : 1};
}

void BoxLabels::number_some() {
  for (const int every : {2, 5, 10, 20, 50, 100}) {
    for (auto& [kind, choice] : choices_) {
      if (!has_micro_batch(kind) || share_that_fits(kind, Form::small_number, every) < kMostlyFits) continue;
      choice = {Form::small_number, every};
      return;
    }
  }
}

BoxLabel BoxLabels::label(std::size_t group, const TimelineBox& box) const {
  if (box.count > 1) return {};
  const Choice choice = choices_.at(box.op->op.kind);
  if (choice.every == 0 || (choice.every > 1 && box.op->op.micro_batch % choice.every != 0)) return {};
  if (!fits(choice.form, group, box, choice.every)) return {};
  return {text(choice.form, group, box), is_small(choice.form)};
}

std::vector<RowGroup> row_groups(const std::vector<TimelineRow>& rows, std::span<const MemoryCurve> memory) {
  const bool fold = rows.size() > kUnfolded;
  std::vector<RowGroup> groups;
  for (std::size_t w = 0; w < rows.size(); ++w) {
    const auto alike = [&](std::size_t first) {
      return equal(rows[first], rows[w]) && (memory.empty() || memory[first] == memory[w]);
    };
    const auto takes = [&](const RowGroup& group) {
      const TimelineRow& first = rows[group.workers.front()];
      if (fold) return first.stages == rows[w].stages;
      return first.stages.size() == 1 && alike(group.workers.front());
    };
    const auto found = std::ranges::find_if(groups, takes);
    if (found == groups.end()) {
      groups.push_back({{w}});
    } else {
      found->alike = found->alike && alike(found->workers.front());
      found->workers.push_back(w);
    }
  }
  return groups;
}

RowName row_name(const RowGroup& group, const TimelineRow& row, const SvgOptions& options) {
  RowName name{row.stages.size() == 1 ? "stage " : "stages ", group_text(group, options)};
  for (std::size_t s = 0; s < row.stages.size(); ++s)
    name.stages.append(s == 0 ? "" : ", ").append(std::to_string(number(row.stages[s])));
  for (std::size_t s = 0; s < row.stages.size() && !options.stage_layers.empty(); ++s)
    name.stages.append(s == 0 ? ": " : "; ").append(options.stage_layers[index(row.stages[s])]);
  return name;
}

std::string cut_to(const std::string& text, double pixels) {
  if (text_width(text) <= pixels) return text;
  const auto letters = static_cast<std::size_t>(std::max(pixels / text_width("m"), 4.0));
  return std::string(beginning(text, letters - 3)) + "...";
}

double place_legend(std::span<LegendItem> items, double y, double width) {
  double x = SvgLayout::kLeft;
  for (LegendItem& item : items) {
    const double item_width = label_offset(item) + text_width(item.label) + 12;
    if (x > SvgLayout::kLeft && x + item_width > width) {
      x = SvgLayout::kLeft;
      y += kLine;
    }
    item.x = x;
    item.y = y;
    x += item_width;
  }
  return y;
}

void draw_legend(SvgWriter& svg, std::span<const LegendItem> items) {
  for (const LegendItem& item : items) {
    if (item.swatch == Swatch::box) svg.rect(item.x, item.y - 10, kSwatch, 12, item.css);
    if (item.swatch == Swatch::line) svg.line(item.x, item.y - 4, item.x + kSwatch, item.y - 4, item.css);
    svg.text(item.x + label_offset(item), item.y, "t", item.label);
  }
}

}  // namespace pp::plan
