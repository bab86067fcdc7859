// What the pictures of a plan's timeline are named with.
#pragma once

#include <string>

#include "libplan/draw/timeline_svg.h"
#include "libplan/plan.h"

namespace pp::plan {

/// `conv1 .. conv3`, or the one layer.
std::string layer_range(const Stage& stage);

/// Layers of the stages, devices of the workers and their memory; no title. The plan has been checked.
SvgOptions picture_names(const Plan& plan);

}  // namespace pp::plan
