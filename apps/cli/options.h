// Options by their rows (libprofile/core/options.h), and the texts of lists and numbers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"
#include "apps/cli/shell.h"
#include "libprofile/core/options.h"

namespace pp::cli {

/// An option that sets a field of `options`; both outlive the command.
Option add_option(const Command& command, const OptionRow& row, void* options);

template <class Rows>
void add_options(const Command& command, const Rows& rows, OwnerOf<Rows>& options) {
  for (const OptionRow& row : rows) add_option(command, row, &options);
}

/// A command with these options, and with those that `more` adds to it.
template <class Rows, class Run>
void add_command(const Command& app, Shell& shell, const std::string& name, const std::string& summary,
                 const Rows& rows, Run run, const std::vector<std::string_view>& examples,
                 const std::function<void(const Command&, OwnerOf<Rows>&)>& more = {}) {
  const auto options = std::make_shared<OwnerOf<Rows>>();
  const Command command = app.add_subcommand(name, summary);
  add_options(command, rows, *options);
  if (more) more(command, *options);
  add_common_options(command, shell, examples);
  command.final_callback([options, run, &shell] { run(*options, shell); });
}

/// `1,2,4` or `3-1` into whole numbers >= 1. Throws pp::Error (usage) that names the option and the part.
std::vector<int> parse_counts(const std::string& text, char separator, const std::string& option);

}  // namespace pp::cli
