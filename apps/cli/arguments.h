// The command line against what a tool knows, before it is parsed: whatever is unknown is named first, with
// the nearest known name, so that no complaint about something else hides it. And the documents that come
// with the tools, in share/pp/ beside bin/: a name in place of a path.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pp::cli {

/// `typed` with `default_command` in front where it names no command. Throws pp::Error (usage) for an unknown
/// option, a mistyped command, and an argument that the command has no place for. `of_plan`: options that
/// belong to pp-plan alone.
std::vector<std::string> complete_arguments(const CLI::App& app, const std::string& default_command,
                                            std::span<const std::string_view> of_plan,
                                            std::vector<std::string> typed);

/// `typed` where it is a path: it has a `/` or a `.`, is `-`, or names a file. Else the document of that name
/// in share/pp/`folder`: `h100` of devices. Throws pp::Error (usage) with `option` and the names that there
/// are.
std::string shipped_document(const std::string& typed, const std::string& folder, const std::string& option);

}  // namespace pp::cli
