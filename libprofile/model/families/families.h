// Built-in model families: C++ builders with arguments that only produce a ModelGraph (no Torch).
//   `lenet5`, `vgg16:classes=10,image=32`, `transformer:layers=4,width=128,heads=4,vocabulary=256,sequence=64`
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

struct FamilyArgument {
  std::string_view name;
  double default_value;
  double min, max;  ///< inclusive
  std::string_view summary;
  bool whole = true;  ///< an integer
};

/// `classes=1000`: the argument with its default.
std::string to_text(const FamilyArgument& argument);

struct FamilyRow {
  std::string_view name;
  std::string_view summary;
  std::vector<FamilyArgument> arguments;
};

const std::vector<FamilyRow>& family_table();

/// `name` or `name:key=value,...`. The result is checked, its attributes are complete; its name is the family's
/// with the arguments that differ from their defaults. Throws pp::Error (usage) that lists the families, or the
/// family's arguments with their defaults, or the limits of the one out of range.
ModelGraph build_family(std::string_view spec);

}  // namespace pp::model
