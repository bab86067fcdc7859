// What people see of a run while it goes on: a line on the terminal, and the lines of --metrics.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/progress.h"
#include "libprofile/core/file.h"
#include "librun/run.h"

namespace pp::run_tool {

class RunObserver : public run::Observer {
 public:
  /// `metrics`: a path, - for stdout, empty for none; a run that is resumed adds to the file. Throws pp::Error
  /// (usage) when it cannot be written.
  RunObserver(const cli::Shell& shell, const std::string& metrics, LineFile::Begin begin);

  void start(const run::RunStart& start) override;
  void information(std::string_view text) override;
  void step(const run::Progress& progress) override;
  void epoch(const run::EpochReport& epoch) override;
  void evaluation(const run::EvaluationReport& evaluation) override;
  void warning(std::string_view text) override;

 private:
  /// A file that cannot be written any more is a warning: the training is worth more.
  void record(const std::string& line);

  cli::ProgressLine line_;
  bool to_stdout_;
  std::optional<LineFile> metrics_;
  double samples_per_s_ = 0;            ///< the last steps count most
  std::optional<run::Progress> first_;  ///< from which the time left is told
};

/// `step 12/100, loss 0.123, 5876 samples/s, 1:05 left, bubble 15.0 %, 4.18 MiB`; `left`: nothing when unknown.
std::string progress_detail(const run::Progress& progress, double samples_per_s, std::optional<Seconds> left);

}  // namespace pp::run_tool
