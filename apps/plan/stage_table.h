// The table of a plan's stages. Large machines say few things: what is alike stands in one row, devices as
// ranges.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/plan/plan.h"

namespace pp::plan_tool {

/// `12 x 2, 1, 1` of `2-2-...-2-1-1`: four equal ones in a row, or more, are counted. Without such a row the
/// list as it is.
std::string counted_runs(std::string_view list, char separator);

/// `17|15.2` of stages with so many blocks, of one that is cut its share of layers; of a model without blocks
/// layers.
std::string blocks_text(const ModelGraph& model, std::span<const std::vector<std::string>> stages);
/// The same of `222|197`: layers of the stages, in the order of the model's file.
std::string blocks_text(const ModelGraph& model, std::string_view layers);
/// `17|15 on 4`, `8 x 2 on 1-1-2`: stages and their replicas in a cell.
std::string placed_text(const ModelGraph& model, std::string_view layers, const std::string& replicas);
/// What these count: `blocks`, or `layers`.
std::string part_word(const ModelGraph& model);

/// Lines that end with the bottleneck's; stages of equal size, time and memory that follow one another share a
/// row where they are three or more. Below it what brackets mean, and the devices without work.
/// `named`: with the numbers and names of layers.
std::string stage_table(const plan::Plan& plan, bool color, bool named);

}  // namespace pp::plan_tool
