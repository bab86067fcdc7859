// Lines on stderr besides errors: `pp-plan: warning: ...`. spdlog stays behind this file.
#pragma once

#include <string_view>

#include "apps/cli/shell.h"

namespace pp::cli {

/// From here on: -q leaves out everything, -v adds decisions.
void configure_log(const Shell& shell);

void inform(std::string_view text);
void warn(std::string_view text);

}  // namespace pp::cli
