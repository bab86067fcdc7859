#include "libplan/draw/svg_names.h"

#include <algorithm>

#include "libprofile/core/index.h"
#include "libprofile/core/svg_writer.h"
#include "libprofile/core/utf8.h"

namespace pp::plan {
namespace {

bool equal(const TimelineRow& a, const TimelineRow& b) {
  const auto same = [](const OpEvent* x, const OpEvent* y) {
    return x->op.kind == y->op.kind && x->op.stage == y->op.stage && x->start == y->start && x->end == y->end;
  };
  return a.stages == b.stages && std::ranges::equal(a.ops, b.ops, same);
}

/// `worker 3`, `workers 0, 2`, `workers 0 to 3`.
std::string workers_text(const EqualWorkers& group) {
  if (group.size() == 1) return "worker " + std::to_string(group.front());
  if (group.size() > 2 && group.back() - group.front() + 1 == group.size())
    return "workers " + std::to_string(group.front()) + " to " + std::to_string(group.back());
  std::string text = "workers ";
  for (const std::size_t worker : group)
    text.append(worker == group.front() ? "" : ", ").append(std::to_string(worker));
  return text;
}

std::string devices_text(const EqualWorkers& group, const SvgOptions& options) {
  if (options.devices.empty()) return "";
  const std::string& first = options.devices[group.front()];
  return group.size() == 1 ? ", " + first : ", " + first + " .. " + options.devices[group.back()];
}

}  // namespace

std::vector<EqualWorkers> equal_workers(const std::vector<TimelineRow>& rows,
                                        std::span<const MemoryCurve> memory) {
  std::vector<EqualWorkers> groups;
  for (std::size_t w = 0; w < rows.size(); ++w) {
    const auto same = [&](const EqualWorkers& group) {
      return equal(rows[group.front()], rows[w]) && (memory.empty() || memory[group.front()] == memory[w]);
    };
    const auto found = std::ranges::find_if(groups, same);
    if (found != groups.end()) {
      found->push_back(w);
    } else {
      groups.push_back({w});
    }
  }
  return groups;
}

RowName row_name(const EqualWorkers& group, const TimelineRow& row, const SvgOptions& options) {
  RowName name{row.stages.size() == 1 ? "stage " : "stages ",
               workers_text(group) + devices_text(group, options)};
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

}  // namespace pp::plan
