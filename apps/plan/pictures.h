// A simulated step as pictures: the timeline on stdout, SVG and Chrome trace as files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/cli/output.h"
#include "apps/cli/shell.h"
#include "libplan/draw/timeline_svg.h"
#include "libplan/plan/plan.h"
#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan_tool {

struct PictureOptions {
  std::string svg;    ///< path, - for stdout, empty for none
  std::string trace;  ///< likewise
  int width = 0;      ///< columns of the text timeline; 0: the terminal's, 100 where stdout is none
};

/// --svg, --trace, --width.
void add_picture_options(const cli::Command& command, PictureOptions& options);

/// Everything the pictures show.
struct Simulated {
  plan::SvgOptions names;
  plan::SimulationResult result;
  std::vector<plan::MemoryCurve> memory;
};
Simulated simulate_all(plan::SvgOptions names, const plan::SimulationInput& input);

/// Title, layers of the stages, devices of the workers and their memory.
plan::SvgOptions picture_names(const plan::Plan& plan);

/// The text timeline, at most 200 columns unless --width asks for more.
std::string timeline(const Simulated& simulated, const PictureOptions& options, bool color);

/// Opens what --svg and --trace name, before the work. Throws pp::Error (usage) when both are stdout or one
/// cannot be written.
class PictureFiles {
 public:
  explicit PictureFiles(const PictureOptions& options);
  bool wanted() const { return svg_.wanted() || trace_.wanted(); }
  /// Then nothing else belongs there.
  bool take_stdout() const { return svg_.is_stdout() || trace_.is_stdout(); }
  bool has_trace() const { return trace_.wanted(); }
  /// SVG of all of them, one below the other; a trace of the first.
  void write(std::span<const Simulated> simulated);

 private:
  cli::Output svg_;
  cli::Output trace_;
};

}  // namespace pp::plan_tool
