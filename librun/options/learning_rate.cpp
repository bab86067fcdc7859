#include "librun/options/learning_rate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"

namespace pp::run {

namespace {

double from_table(const std::vector<std::pair<Step, double>>& table, Step step) {
  const auto after = std::ranges::upper_bound(table, step, {}, &std::pair<Step, double>::first);
  return std::prev(after)->second;
}

// Of a step behind the warm-up.
double settled(const RateSchedule& schedule, double base, Step total, Step step) {
  const Step t = step - schedule.warm_up;
  switch (schedule.kind) {
    case RateKind::constant: return base;
    case RateKind::step: return base * std::pow(schedule.factor, static_cast<double>(t / schedule.period));
    case RateKind::cosine: {
      const auto length = static_cast<double>(std::max<Step>(1, total - schedule.warm_up));
      const double swing = (1 + std::cos(std::numbers::pi * static_cast<double>(t) / length)) / 2;
      return schedule.least + (base - schedule.least) * swing;
    }
    case RateKind::table: return from_table(schedule.table, step);
  }
  return base;
}

[[noreturn]] void refuse(const std::filesystem::path& path, int line, const std::string& what) {
  throw Error(ErrorKind::data, path.string() + ":" + std::to_string(line) + ": " + what);
}

}  // namespace

double rate_at(const RateSchedule& schedule, double base, Step total, Step step) {
  if (step >= schedule.warm_up) return settled(schedule, base, total, step);
  return settled(schedule, base, total, schedule.warm_up) * static_cast<double>(step + 1) /
         static_cast<double>(schedule.warm_up);
}

std::vector<std::pair<Step, double>> read_rates(const std::filesystem::path& path) {
  std::vector<std::pair<Step, double>> table;
  std::istringstream lines(read_file(path));
  std::string text;
  for (int line = 1; std::getline(lines, text); ++line) {
    std::istringstream words(text.substr(0, text.find('#')));
    std::string step_text, rate_text, more;
    if (!(words >> step_text)) continue;
    if (!(words >> rate_text) || words >> more)
      refuse(path, line, "must be a step and a rate, as in `100 0.01`");
    Step step = 0;
    double rate = 0;
    const auto whole = [](const std::string& word, auto& value) {
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      return error == std::errc() && end == word.data() + word.size();
    };
    if (!whole(step_text, step) || step < 0)
      refuse(path, line, "step \"" + step_text + "\" is not a whole number");
    if (!whole(rate_text, rate) || !std::isfinite(rate) || rate < 0)
      refuse(path, line, "rate \"" + rate_text + "\" is not a number of at least 0");
    if (table.empty() && step != 0)
      refuse(path, line, "the first step is " + step_text + "; begin with step 0");
    if (!table.empty() && step <= table.back().first)
      refuse(path, line, "step " + step_text + " does not follow " + std::to_string(table.back().first));
    table.emplace_back(step, rate);
  }
  if (table.empty()) throw Error(ErrorKind::data, path.string() + ": has no rates; give lines such as `0 0.1`");
  return table;
}

}  // namespace pp::run
