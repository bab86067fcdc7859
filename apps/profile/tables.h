// A profile as text for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/cli/output.h"
#include "apps/cli/shell.h"
#include "libprofile/report/layer_rows.h"

namespace pp::profile_tool {

struct LayerTableOptions {
  profile::LayerOrder order = profile::LayerOrder::model;
  std::optional<std::int64_t> micro_batch_size;  ///< none: the largest measured
  int limit = 0;                                 ///< show the first so many layers of the order; 0: all
  int width = 100;                               ///< columns; what is left beside the figures goes to the bars
  bool color = false;
};

/// What was measured, on what, and how far the sum of the layers is from the whole model.
std::string profile_summary(const Profile& profile);
/// One row per layer: times in ms, bytes in KiB, bars of its time and its memory (weights and saved), each
/// beside the largest. Below, the layers that take most. Throws pp::Error (usage) for a size that was not
/// measured.
std::string layer_table(const Profile& profile, const LayerTableOptions& options);

/// Says where attention keeps its scores for dropout alone (scores_kept()).
void tell_of_scores(const ModelGraph& model);

/// Writes a new profile, and prints what the shell asks for: its summary and first layers, or all as JSON.
void write_profile(const Profile& profile, cli::Output& output, const cli::Shell& shell);

}  // namespace pp::profile_tool
