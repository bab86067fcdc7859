#include "libplan/draw/svg_labels.h"

#include <algorithm>
#include <array>

#include "libprofile/core/index.h"
#include "libprofile/core/svg_writer.h"

namespace pp::plan {
namespace {

/// Of the boxes of a kind, so many must hold a form; the rest stay empty.
constexpr double kMostlyFits = 0.9;

}  // namespace

BoxLabels::BoxLabels(const std::vector<EqualWorkers>& groups, const std::vector<TimelineRow>& rows,
                     const std::vector<std::vector<TimelineBox>>& boxes, double pixels_per_second)
    : groups_(groups),
      rows_(rows),
      boxes_(boxes),
      pixels_per_second_(pixels_per_second),
      chunks_(most_chunks(rows) > 1) {
  for (const std::vector<TimelineBox>& row : boxes_) {
    for (const TimelineBox& box : row) choices_.try_emplace(box.op->op.kind);
  }
  bool numbered = false;
  for (auto& [kind, choice] : choices_) {
    choice = choose(kind);
    numbered |= has_micro_batch(kind) && choice.every > 0;
  }
  if (!numbered) number_some();
}

/// `3`; of several equal workers `0-3`, or `0,4`.
std::string BoxLabels::numbers(std::size_t group, const OpEvent& event) const {
  const EqualWorkers& workers = groups_[group];
  const std::vector<const OpEvent*>& first = rows_[workers.front()].ops;
  const auto position = std::ranges::lower_bound(first, event.start, {}, &OpEvent::start);
  const auto place = std::find(position, first.end(), &event) - first.begin();
  std::vector<int> found;
  for (const std::size_t worker : workers) found.push_back(rows_[worker].ops[at(place)]->op.micro_batch);
  std::ranges::sort(found);
  if (found.size() == 1) return std::to_string(found.front());
  const bool run = found.back() - found.front() + 1 == static_cast<int>(found.size());
  return std::to_string(found.front()) + (run ? "-" : "..") + std::to_string(found.back());
}

std::string BoxLabels::text(Form form, std::size_t group, const TimelineBox& box) const {
  const OpEvent& event = *box.op;
  const std::string kind(name_of(event.op.kind));
  if (!has_micro_batch(event.op.kind)) return form == Form::stage_and_number ? to_text(event.op) : kind;
  const std::string number = numbers(group, event);
  switch (form) {
    case Form::stage_and_number: return kind + std::to_string(pp::number(event.op.stage)) + '.' + number;
    case Form::kind_and_number: return kind + number;
    case Form::number:
    case Form::small_number: break;
  }
  return number;
}

bool BoxLabels::fits(Form form, std::size_t group, const TimelineBox& box, double times) const {
  const double width = (box.end - box.start).count() * pixels_per_second_ * times - 2;
  const double font = form == Form::small_number ? kSmallFont : kSvgFont;
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

BoxLabels::Choice BoxLabels::choose(OpKind kind) const {
  for (const Form form : {Form::stage_and_number, Form::kind_and_number, Form::number, Form::small_number}) {
    if (form == Form::stage_and_number && !chunks_) continue;
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
  return {text(choice.form, group, box), choice.form == Form::small_number};
}

}  // namespace pp::plan
