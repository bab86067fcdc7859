#include "apps/cli/self_description.h"

#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/completion.h"
#include "apps/cli/man_page.h"
#include "apps/cli/options.h"
#include "apps/cli/tool_words.h"

namespace pp::cli {
namespace {

template <std::size_t N>
void add_examples(const Command& command, Shell& shell, const std::array<std::string, N>& examples) {
  std::array<std::string_view, N> views;
  std::ranges::copy(examples, views.begin());
  add_common_options(command, shell, views);
}

void add_completion(const Command& app, const Tool& tool, Shell& shell) {
  const auto kind = std::make_shared<ShellKind>(ShellKind::bash);
  const Command command = app.add_subcommand("completion", "print the script that completes this tool's words");
  add_enum(command, "shell", *kind, "which shell").required();
  add_examples(
      command, shell,
      std::array{tool.name + " completion bash > ~/.local/share/bash-completion/completions/" + tool.name,
                 tool.name + " completion zsh > ~/.zfunc/_" + tool.name,
                 tool.name + " completion fish > ~/.config/fish/completions/" + tool.name + ".fish"});
  command.final_callback(
      [kind, app, &tool] { std::cout << completion_script(words_of(app.app(), tool.default_command), *kind); });
}

void add_manual(const Command& app, const Tool& tool, Shell& shell) {
  const Command command = app.add_subcommand("manual", "print the manual page, in roff");
  add_examples(command, shell,
               std::array{tool.name + " manual | man -l -", tool.name + " manual > " + tool.name + ".1",
                          tool.name + " manual | groff -man -Tpdf > " + tool.name + ".pdf"});
  command.final_callback([app, &tool] { std::cout << man_page(words_of(app.app(), tool.default_command)); });
}

}  // namespace

void add_self_description(const Command& app, const Tool& tool, Shell& shell) {
  add_completion(app, tool, shell);
  add_manual(app, tool, shell);
}

}  // namespace pp::cli
