// What a reader of a profile should know before believing it, told by the document alone. What its times say
// about themselves is in measure/findings.h.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::profile {

/// One sentence each, with its remedy: sizes that ran out of memory; figures that are assumed; a load average
/// above the number of cores while it was measured.
std::vector<std::string> document_findings(const Profile& profile);

}  // namespace pp::profile
