// A tool's manual page from its option tables.
#pragma once

#include <string>

#include "apps/cli/tool_words.h"

namespace pp::cli {

/// In section 1, in the man macros of roff: `pp-plan manual | man -l -`.
std::string man_page(const ToolWords& tool);

}  // namespace pp::cli
