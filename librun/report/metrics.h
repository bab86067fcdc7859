// The lines of `--metrics FILE.jsonl`: JSON objects for people's own plots, told apart by their first key: one
// with a format begins a run, `step` is of a step, `evaluation` of an epoch's end, or of an evaluation, which
// has no train_loss.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "librun/report/progress.h"

namespace pp::run {

/// Whether a file that begins with this line has such lines.
bool begins_metrics(std::string_view line);

/// The keys of each kind of line.
std::vector<Keys> metrics_keys();

/// Each one line with its newline.
std::string metrics_line(const RunStart& start);
std::string metrics_line(const Progress& step);
std::string metrics_line(const EpochReport& epoch);
std::string metrics_line(const EvaluationReport& evaluation);

}  // namespace pp::run
