// The list of the built-in families, private to them.
#pragma once

#include <vector>

#include "libprofile/model/families/builder.h"
#include "libprofile/model/families/families.h"

namespace pp::model {

struct Family {
  FamilyRow row;
  Build build;
};

/// In the order in which people are shown them: plain networks, images, language, recurrent networks.
const std::vector<Family>& families();

}  // namespace pp::model
