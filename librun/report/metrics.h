// The lines of `--metrics FILE.jsonl`: JSON objects for people's own plots, told apart by their first key.
//
//   {"format": "pp.metrics", "version": 1, "plan_hash", "seed", "first_step", "steps",
//    "settings"}                                                                        begins a run
//   {"step", "epoch", "loss", "learning_rate", "samples", "samples_per_s", "elapsed_s",
//    "bubble_fraction", "peak_bytes", "gradient_norm" with --clip-norm}                 a step
//   {"evaluation", the epoch, "step", its last, "elapsed_s", "evaluation_s", "train_loss",
//    "test_loss" and "test_accuracy" where there are}                                   an epoch's end, or
//                                                          an evaluation, which has no train_loss
#pragma once

#include <string>
#include <string_view>

#include "librun/report/progress.h"

namespace pp::run {

/// Whether a file that begins with this line has such lines.
bool begins_metrics(std::string_view line);

/// Each one line with its newline.
std::string metrics_line(const RunStart& start);
std::string metrics_line(const Progress& step);
std::string metrics_line(const EpochReport& epoch);
std::string metrics_line(const EvaluationReport& evaluation);

}  // namespace pp::run
