#include "apps/plan/pictures.h"

#include "apps/cli/options.h"
#include "apps/cli/terminal_text.h"
#include "apps/plan/tables.h"
#include "libplan/draw/chrome_trace.h"
#include "libplan/draw/timeline_text.h"
#include "libplan/explorer/plan_data.h"

namespace pp::plan_tool {

namespace {

constexpr auto kPictures = options(
    option<&PictureOptions::svg>("--svg", "write the timeline and memory over time as SVG; - for stdout",
                                 {.group = "Pictures", .value = "FILE"}),
    option<&PictureOptions::trace>("--trace", "write Chrome trace JSON, for Perfetto; - for stdout",
                                   {.value = "FILE"}),
    option<&PictureOptions::width>("--width", "columns of the text timeline; default: the terminal's, else 100",
                                   {.least = 20, .most = 10000}));

}  // namespace

void add_picture_options(const cli::Command& command, PictureOptions& options) {
  cli::add_options(command, kPictures, options);
}

plan::SvgOptions picture_names(const plan::Plan& plan) {
  plan::SvgOptions names = plan::picture_names(plan);
  names.title = plan_description(plan) + "; " + cli::shown(plan.model.name);  // what is too long ends first
  return names;
}

Simulated simulate_all(plan::SvgOptions names, const plan::SimulationInput& input) {
  plan::SimulationResult result = plan::simulate(input);
  std::vector<plan::MemoryCurve> memory = plan::memory_curves(input, result);
  return {std::move(names), std::move(result), std::move(memory)};
}

std::string timeline(const Simulated& simulated, const PictureOptions& options, bool color) {
  const int width = options.width > 0 ? options.width : cli::terminal_width();
  return cli::with_own_colors(plan::timeline_text(simulated.result, simulated.memory, {width, color}));
}

PictureFiles::PictureFiles(const PictureOptions& options) : svg_(options.svg), trace_(options.trace) {}

void PictureFiles::write(std::span<const Simulated> simulated) {
  if (svg_.wanted()) {
    std::vector<plan::SvgTimeline> timelines;
    for (const Simulated& one : simulated) timelines.push_back({&one.result, one.memory, one.names});
    svg_.write(plan::timelines_svg(timelines));
  }
  if (trace_.wanted()) trace_.write(plan::chrome_trace(simulated.front().result, simulated.front().memory));
}

}  // namespace pp::plan_tool
