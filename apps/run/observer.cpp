#include "apps/run/observer.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/run/summary.h"
#include "librun/report/metrics.h"

namespace pp::run_tool {

namespace {

/// Lines are added to files of metrics only: what else stands under that name was not meant. A run that was
/// killed may have left half a line.
void require_metrics(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  const bool opened = file.is_open(), empty = opened && !std::getline(file, line);
  if (!opened || file.bad())
    throw Error(ErrorKind::usage, path + ": cannot be read, and a resumed training adds lines to its metrics");
  if (empty) return;
  const bool cut = file.eof() && line.starts_with('{');
  if (cut || run::begins_metrics(line)) return;
  throw Error(ErrorKind::usage,
              path + ": is no file of --metrics, to which a resumed training adds its lines; name another");
}

}  // namespace

RunObserver::RunObserver(const cli::Shell& shell, const std::string& metrics, LineFile::Begin begin)
    : line_(shell), to_stdout_(metrics == "-") {
  if (metrics.empty()) return;
  cli::claim_output(metrics);
  if (to_stdout_) return;
  if (begin == LineFile::Begin::at_the_end) require_metrics(metrics);
  metrics_.emplace(metrics, begin);
}

void RunObserver::start(const run::RunStart& start) { record(run::metrics_line(start)); }

void RunObserver::step(const run::Progress& progress) {
  record(run::metrics_line(progress));
  constexpr double kNewest = 0.1;
  if (progress.samples_per_s > 0) {
    const double change = progress.samples_per_s - samples_per_s_;
    samples_per_s_ += samples_per_s_ > 0 ? kNewest * change : change;
  }
  if (!first_) first_ = progress;
  std::optional<Seconds> left;
  if (const auto done = static_cast<double>(progress.step - first_->step); done > 0)
    left = (progress.elapsed - first_->elapsed) * (static_cast<double>(progress.steps - progress.step) / done);
  const double done =
      progress.steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.steps) : 0;
  line_.update("training", done, progress_detail(progress, samples_per_s_, left));
}

void RunObserver::epoch(const run::EpochReport& epoch) {
  record(run::metrics_line(epoch));
  line_.clear();
  cli::inform(epoch_line(epoch));
}

void RunObserver::evaluation(const run::EvaluationReport& evaluation) {
  record(run::metrics_line(evaluation));
  line_.clear();
  cli::inform(evaluation_line(evaluation));
}

void RunObserver::information(std::string_view text) {
  line_.clear();
  cli::inform(text);
}

void RunObserver::warning(std::string_view text) {
  line_.clear();
  cli::warn(text);
}

void RunObserver::record(const std::string& line) {
  if (to_stdout_) std::cout << line << std::flush;
  if (!metrics_) return;
  try {
    metrics_->append(line);
  } catch (const Error& error) {
    metrics_.reset();
    warning(std::string(error.what()) + "; the training goes on without it");
  }
}

std::string progress_detail(const run::Progress& progress, double samples_per_s, std::optional<Seconds> left) {
  std::string text = "step " + std::to_string(progress.step) + '/' + std::to_string(progress.steps) +
                     ", loss " + cli::cell(progress.loss) + ", " + cli::cell(samples_per_s) + " samples/s";
  if (left) text += ", " + cli::clock(*left) + " left";
  return text + ", bubble " + cli::percent(progress.bubble_fraction) + ", " + to_text(progress.peak);
}

}  // namespace pp::run_tool
