#include "librun/report/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "libprofile/core/json_fields.h"

namespace pp::run {
namespace {

constexpr Object kStart{
    "metrics",
    key<&RunStart::plan_hash>("plan_hash"),
    key<&RunStart::seed>("seed", kSeed),
    key<&RunStart::first_step>("first_step"),
    key<&RunStart::steps>("steps"),
    key<&RunStart::settings>("settings", kSettings),
};

constexpr Object kStep{
    "metrics_step",
    key<&Progress::step>("step"),
    key<&Progress::epoch>("epoch"),
    key<&Progress::loss>("loss", kLoss),
    key<&Progress::learning_rate>("learning_rate"),
    key<&Progress::samples>("samples"),
    key<&Progress::samples_per_s>("samples_per_s"),
    key<&Progress::elapsed>("elapsed_s"),
    key<&Progress::bubble_fraction>("bubble_fraction", kShare),
    key<&Progress::peak>("peak_bytes"),
    optional<&Progress::gradient_norm>("gradient_norm"),
    optional<&Progress::loss_scale>("loss_scale", kPositive),
};

struct Evaluation {
  int epoch = 0;
  std::int64_t step = 0;
  Seconds elapsed{}, time{};
  std::optional<double> train_loss, test_loss, test_accuracy;
};
constexpr Object kEvaluationLine{
    "metrics_evaluation",
    key<&Evaluation::epoch>("evaluation"),
    key<&Evaluation::step>("step"),
    key<&Evaluation::elapsed>("elapsed_s"),
    key<&Evaluation::time>("evaluation_s"),
    optional<&Evaluation::train_loss>("train_loss", kLoss),
    optional<&Evaluation::test_loss>("test_loss", kLoss),
    optional<&Evaluation::test_accuracy>("test_accuracy", kShare),
};

std::string line_of(const Json& json) { return dump_json_compact(json) + '\n'; }

}  // namespace

bool begins_metrics(std::string_view line) {
  constexpr std::size_t kFront = 40;
  return line.starts_with('{') && line.substr(0, kFront).find("pp.metrics") != std::string_view::npos;
}

std::vector<Keys> metrics_keys() { return {keys_of(kStart), keys_of(kStep), keys_of(kEvaluationLine)}; }

std::string metrics_line(const RunStart& start) { return line_of(document_json(kStart, start)); }

std::string metrics_line(const Progress& step) {
  Progress finite = step;
  if (finite.gradient_norm && !std::isfinite(*finite.gradient_norm)) finite.gradient_norm.reset();
  return line_of(to_json(kStep, finite));
}

std::string metrics_line(const EpochReport& epoch) {
  const Seconds end = epoch.elapsed + epoch.evaluation;
  return line_of(to_json(kEvaluationLine, {epoch.epoch, epoch.last_step, end, epoch.evaluation,
                                           epoch.train_loss, epoch.test_loss, epoch.test_accuracy}));
}

std::string metrics_line(const EvaluationReport& evaluation) {
  const Seconds end = evaluation.elapsed + evaluation.time;
  return line_of(to_json(kEvaluationLine, {evaluation.epoch, evaluation.step, end, evaluation.time,
                                           std::nullopt, evaluation.test_loss, evaluation.test_accuracy}));
}

}  // namespace pp::run
