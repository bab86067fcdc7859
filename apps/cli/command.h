// Commands and their options. CLI11 stays behind this file: a file that sees it compiles the whole parser.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pp::cli {

/// What the text of a value must be.
struct Check {
  std::function<std::string(const std::string&)> problem;  ///< empty: none
  std::string range;                                       ///< in the help, behind the type
  std::string name;
};

/// A handle: copies are the same option. Every setter returns its option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option required(bool yes = true) const;
  Option check(const Check& check) const;
  Option excludes(Option other) const;
  Option group(const std::string& title) const;
  Option type_name(const std::string& name) const;
  /// All that its value may be, for completion; what reads it refuses the rest.
  Option choices(const std::vector<std::string>& names) const;
  Option default_str(const std::string& text) const;
  /// Several values in one argument, `a,b`.
  Option delimiter(char separator) const;
  Option allow_extra_args(bool allow) const;
  /// How often it was given.
  std::size_t count() const;

 private:
  CLI::Option* option_;
};

/// A handle to a subcommand, or to the tool that has them.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}
  CLI::App& app() const { return *app_; }

  Command add_subcommand(const std::string& name, const std::string& summary) const;
  /// command.cpp lists the types of values. A `name` without dashes is a positional argument.
  template <class Value>
  Option add_option(const std::string& name, Value& value, const std::string& summary) const;
  /// `take` gets the text.
  Option add_option_function(const std::string& name, const std::function<void(const std::string&)>& take,
                             const std::string& summary) const;
  /// `!--name` sets false; an int counts.
  template <class Value>
  Option add_flag(const std::string& name, Value& value, const std::string& summary) const;
  /// One that it has, by any of its names.
  Option option(const std::string& name) const;
  /// What the command does, once its options are read.
  void final_callback(std::function<void()> work) const;

 private:
  CLI::App* app_;
};

}  // namespace pp::cli
