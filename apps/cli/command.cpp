#include "apps/cli/command.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/self_description.h"

namespace pp::cli {

Option Option::required(bool yes) const { return Option(option_->required(yes)); }
Option Option::check(const Check& check) const {
  return Option(option_->check(CLI::Validator(check.problem, check.range, check.name)));
}
Option Option::choices(const std::vector<std::string>& names) const {
  const auto any = [](std::string&) { return std::string(); };
  return Option(option_->check(CLI::Validator(any, "", kChoices + CLI::detail::join(names, ","))));
}
Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }
Option Option::group(const std::string& title) const { return Option(option_->group(title)); }
Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }
Option Option::default_str(const std::string& text) const { return Option(option_->default_str(text)); }
Option Option::delimiter(char separator) const { return Option(option_->delimiter(separator)); }
Option Option::allow_extra_args(bool allow) const { return Option(option_->allow_extra_args(allow)); }
std::size_t Option::count() const { return option_->count(); }

Command Command::add_subcommand(const std::string& name, const std::string& summary) const {
  return Command(*app_->add_subcommand(name, summary));
}

template <class Value>
Option Command::add_option(const std::string& name, Value& value, const std::string& summary) const {
  return Option(app_->add_option(name, value, summary));
}
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;

Option Command::add_option_function(const std::string& name,
                                    const std::function<void(const std::string&)>& take,
                                    const std::string& summary) const {
  return Option(app_->add_option_function<std::string>(name, take, summary));
}

template <class Value>
Option Command::add_flag(const std::string& name, Value& value, const std::string& summary) const {
  return Option(app_->add_flag(name, value, summary));
}
template Option Command::add_flag(const std::string&, bool&, const std::string&) const;
template Option Command::add_flag(const std::string&, std::string&, const std::string&) const;
template Option Command::add_flag(const std::string&, int&, const std::string&) const;
template Option Command::add_flag(const std::string&, std::optional<double>&, const std::string&) const;

Option Command::option(const std::string& name) const { return Option(app_->get_option(name)); }

void Command::final_callback(std::function<void()> work) const { app_->final_callback(std::move(work)); }

}  // namespace pp::cli
