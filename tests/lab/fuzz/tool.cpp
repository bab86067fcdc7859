#include "tests/lab/fuzz/tool.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <sstream>
#include <string_view>

#include "apps/plan/commands.h"

namespace pp::fuzz {
namespace {

/// What is written to a stream, until it goes.
class Captured {
 public:
  explicit Captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
  ~Captured() {
    stream_.rdbuf(before_);
    stream_.clear();
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* before_;
};

bool has_control_character(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return c != '\n' && c != '\t' && std::iscntrl(static_cast<unsigned char>(c)) != 0; });
}

/// `nan` or `inf` as a word of its own.
bool has_no_number(std::string_view text) {
  const auto is_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (const std::string_view word : {"nan", "inf"}) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      if ((at == 0 || !is_word(at - 1)) && !is_word(at + word.size())) return true;
    }
  }
  return false;
}

}  // namespace

Ran run_pp_plan(std::vector<std::string> arguments) {
  const cli::Tool tool{.name = "pp-plan",
                       .summary = "",
                       .default_command = "make",
                       .examples = {},
                       .add_commands = [](const cli::Command& app, cli::Shell& shell) {
                         plan_tool::add_make(app, shell);
                         plan_tool::add_compare(app, shell);
                         plan_tool::add_show(app, shell);
                         plan_tool::add_check(app, shell);
                         plan_tool::add_simulate(app, shell);
                         plan_tool::add_export(app, shell);
                         plan_tool::add_schedules(app, shell);
                         plan_tool::add_sweep(app, shell);
                       }};
  arguments.insert(arguments.begin(), "pp-plan");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  Ran ran;
  const Captured out(std::cout), err(std::cerr);
  ran.code = cli::run_tool(tool, static_cast<int>(pointers.size()), pointers.data());
  ran.out = out.text();
  ran.err = err.text();
  return ran;
}

std::string wrong_end(const Ran& ran) {
  constexpr std::size_t kLongestMessage = 20'000;
  // A search of a million micro-batches may have no plan yet when its time is up.
  const bool out_of_time =
      ran.code == 1 && ran.err.find("the time limit ended the search") != std::string::npos;
  if (ran.code != 0 && ran.code != 2 && ran.code != 3 && !out_of_time)
    return "exit code " + std::to_string(ran.code) + ": " + ran.err;
  if (ran.code != 0 && ran.err.empty()) return "exit code " + std::to_string(ran.code) + " without a message";
  if (ran.err.size() > kLongestMessage) return "a message of " + std::to_string(ran.err.size()) + " bytes";
  if (has_control_character(ran.err)) return "control characters in a message\n" + ran.err;
  if (has_control_character(ran.out)) return "control characters on stdout";
  if (ran.code == 0 && has_no_number(ran.out)) return "nan or inf on stdout";
  return "";
}

}  // namespace pp::fuzz
