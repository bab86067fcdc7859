// The tables of operations and losses as README.md shows them.
#pragma once

#include <string>

namespace pp {

/// Both tables, each with a head; `pp-profile models --ops --markdown` prints them.
std::string operations_markdown();

}  // namespace pp
