// What follows from a plan's programs: how the validator reads them, which forwards they recompute and whether
// that agrees with the stages, how many micro-batches each worker holds between forward and backward (its
// windows), and which layers a stage has, in words.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"

namespace pp::plan {

/// The finite set, without skips: one step; streams past the longest prologue and then for a few rounds in
/// which every worker begins its body anew. Where such a round is long and the replicas of each stage do the
/// same in turns, a stretch of it. Throws pp::Error (data) when these are more operations than kOperationLimit.
ProgramSet program_set(const Plan& plan);

/// Per stage the first R of the programs: such a stage is recomputed as a whole.
std::vector<std::optional<Op>> whole_recomputes(const Plan& plan);

/// Per stage `-`, `all` or the number of layers that are recomputed: `all|2|-`; empty when nothing does.
std::string recompute_text(const Plan& plan);

/// What a plan says about recompute agrees: its policy, the layers that stages list, the R of its programs.
/// Stages and programs are valid otherwise. Throws pp::Error (data) with the JSON pointer.
void check_recompute(const Plan& plan);

/// For one worker, the most forwards of the stage at one time whose backward has not ended.
int window_of(const WorkerProgram& program, StageId stage);

/// The same without those whose input gradient has ended: they no longer hold all that their forward saved.
int whole_window_of(const WorkerProgram& program, StageId stage);

/// window_of() in micro-batches of the largest size; `bytes` has the share of each, empty: all are equal. Of a
/// stream their number.
double held_of(const WorkerProgram& program, StageId stage, std::span<const double> bytes);

/// Per stage that of its busiest worker, by the programs.
std::vector<int> windows_of(const Plan& plan);

/// What the same stages hold under the windows of `win`; empty for schedules that read no windows, and for
/// streams.
std::vector<int> classic_windows(const Plan& plan);

/// Per stage the classic window where the plan's is wider; empty: none is.
std::vector<std::optional<int>> widened_from(const Plan& plan);

/// `conv1 .. conv3`, or the one layer.
std::string layer_range(const Stage& stage);

}  // namespace pp::plan
