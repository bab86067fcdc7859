// `--cost-model pipedream-code`: the flat form of the optimizer that PipeDream released (Narayanan et al.,
// SOSP'19; planning.md 4.1 is the specification), for comparison with ours and as a test of the importer.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "libplan/search/planner.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The released code uses all machines, even where fewer are faster.
enum class MachinesRule { exactly, at_most };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::MachinesRule> {
  static constexpr std::array table{std::pair{plan::MachinesRule::exactly, "exactly"sv},
                                    std::pair{plan::MachinesRule::at_most, "at-most"sv}};
};
}  // namespace pp

namespace pp::plan {

struct PipedreamOptions {
  int machines = 1;
  BytesPerSecond bandwidth{0};
  MachinesRule rule = MachinesRule::exactly;
  /// Activation compression ratio; unset: activations cross cuts for free, as in the released code without the
  /// option.
  std::optional<double> activation_compression = 1.0;
  /// The released code's memory test; it never applies to the last stage.
  std::optional<Bytes> memory_limit = std::nullopt;
};

struct PipedreamStage {
  std::vector<std::string> layers;
  int replicas = 1;
  Seconds time{};  ///< compute plus all-reduce, per mini-batch of the profile
  bool operator==(const PipedreamStage&) const = default;
};

struct PipedreamResult {
  std::string profile;  ///< the model's name
  PipedreamOptions options;
  std::vector<PipedreamStage> stages;
  std::vector<int> cuts;  ///< boundaries in the layer order of `stages`
  Seconds objective{};    ///< the slowest stage or cut
  Seconds lower_bound{};  ///< equal to the objective on a chain; on a DAG, over every layer order
  std::string search;
};

/// Exact for each of the six linear orders. O(orders * layers^2 * machines^2). Throws pp::Error (usage) for
/// machines or bandwidth out of range and for a profile with several micro-batch sizes whose smallest is not
/// meant: the first is used.
std::variant<PipedreamResult, Infeasible> plan_pipedream_code(const Profile& profile,
                                                              const PipedreamOptions& options);

/// One object: `{"cost_model": "pipedream-code", "model", "machines", "bandwidth_bytes_per_s", "stages": [...],
/// "cuts", "replicas": "3-1", "certificate": {"objective_s", "lower_bound_s", "gap", "search"}, "search":
/// {"seconds"}}`. `elapsed` is what the caller's clock says about plan_pipedream_code().
Json to_json(const PipedreamResult& result, Seconds elapsed);
std::string replicas_text(const PipedreamResult& result);

}  // namespace pp::plan
