#include "apps/plan/pictures.h"

#include "libplan/simulate/chrome_trace.h"
#include "libplan/simulate/timeline_svg.h"
#include "libplan/simulate/timeline_text.h"

namespace pp::plan_tool {
void add_picture_options(CLI::App& command, PictureOptions& options) {
  command.add_option("--svg", options.svg, "write the timeline and memory over time as SVG; - for stdout")
      ->type_name("FILE")
      ->group("Pictures");
  command.add_option("--trace", options.trace, "write Chrome trace JSON, for Perfetto; - for stdout")
      ->type_name("FILE")
      ->group("Pictures");
  command
      .add_option("--width", options.width, "columns of the text timeline; default: the terminal's, else 100")
      ->check(CLI::Range(20, 10000))
      ->group("Pictures");
}

Simulated simulate_all(std::string title, const plan::SimulationInput& input) {
  plan::SimulationResult result = plan::simulate(input);
  std::vector<plan::MemoryCurve> memory = plan::memory_curves(input, result);
  return {std::move(title), std::move(result), std::move(memory)};
}

std::string timeline(const Simulated& simulated, const PictureOptions& options, bool color) {
  const int width = options.width > 0 ? options.width : cli::terminal_width();
  return plan::timeline_text(simulated.result, simulated.memory, {width, color});
}

PictureFiles::PictureFiles(const PictureOptions& options) : svg_(options.svg), trace_(options.trace) {}

void PictureFiles::write(const Simulated& simulated) {
  if (svg_.wanted()) svg_.write(plan::timeline_svg(simulated.result, simulated.memory, {simulated.title}));
  if (trace_.wanted()) trace_.write(plan::chrome_trace(simulated.result, simulated.memory));
}

}  // namespace pp::plan_tool
