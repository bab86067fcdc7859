// Plans and their timelines as one page for a browser: self-contained, it loads nothing from anywhere.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// A figure of the page's head: `step`, `9.73 ms`, and what stands small beside it.
struct ExplorerTile {
  std::string name, value, beside;
};

/// The plan has been checked; it must outlive the call.
struct ExplorerPlan {
  std::string name;   ///< the file that it comes from
  std::string title;  ///< one line, `model: rest`
  const Plan* plan = nullptr;
  std::vector<ExplorerTile> tiles = {};  ///< empty: what the plan promises
};

/// One of the timelines, which all have one time axis and one scale of memory.
struct ExplorerTimeline {
  std::string name;                          ///< `plan.json`, `measured, steps 3 to 4`
  std::size_t plan = 0;                      ///< whose, of the plans
  const SimulationResult* result = nullptr;  ///< must outlive the call, as `memory`
  std::span<const MemoryCurve> memory;       ///< per worker; empty: not known
  Seconds step{};                            ///< in steady state
  double bubble = 0;
};

/// A tab of the page: a title, and markup in which texts of documents are escaped.
struct ExplorerSection {
  std::string title, markup;
};

/// What the page shows, as JSON: `plans` (plan_data.h), `timelines` (timeline_data.h, with `name`, `plan`,
/// `step` and `bubble`), `kinds` of operations as [letter, name, colour] and `parts` of memory. Together at
/// most about 2.5 MB, whatever the number of workers and operations. A pure function.
Json explorer_data(std::span<const ExplorerPlan> plans, std::span<const ExplorerTimeline> timelines);

/// The page of `data`; `sections` come behind its own. `style` is added to the page's.
std::string explorer_page(std::string_view title, const Json& data,
                          std::span<const ExplorerSection> sections = {}, std::string_view style = {});

}  // namespace pp::plan
