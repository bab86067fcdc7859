#include "libplan/draw/svg_names.h"

#include <algorithm>

#include "libprofile/core/index.h"
#include "libprofile/core/svg_writer.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

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

}  // namespace

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

}  // namespace pp::plan
