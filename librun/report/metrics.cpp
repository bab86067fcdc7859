#include "librun/report/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace pp::run {
namespace {

constexpr auto kMetricsFormat = "pp.metrics";
constexpr int kMetricsVersion = 1;

}  // namespace

bool begins_metrics(std::string_view line) {
  constexpr std::size_t kFront = 40;
  return line.starts_with('{') && line.substr(0, kFront).find(kMetricsFormat) != std::string_view::npos;
}

std::string metrics_line(const RunStart& start) {
  return dump_json_compact({{"format", kMetricsFormat},
                            {"version", kMetricsVersion},
                            {"plan_hash", start.plan_hash},
                            {"seed", start.seed},
                            {"first_step", start.first_step},
                            {"steps", start.steps},
                            {"settings", to_json(start.settings)}}) +
         '\n';
}

std::string metrics_line(const Progress& step) {
  Json line{{"step", step.step},
            {"epoch", step.epoch},
            {"loss", loss_json(step.loss)},
            {"learning_rate", step.learning_rate},
            {"samples", step.samples},
            {"samples_per_s", step.samples_per_s},
            {"elapsed_s", step.elapsed.count()},
            {"bubble_fraction", step.bubble_fraction},
            {"peak_bytes", step.peak.value}};
  if (step.gradient_norm && std::isfinite(*step.gradient_norm)) line["gradient_norm"] = *step.gradient_norm;
  if (step.loss_scale) line["loss_scale"] = *step.loss_scale;
  return dump_json_compact(line) + '\n';
}

std::string metrics_line(const EpochReport& epoch) {
  Json line{{"evaluation", epoch.epoch},
            {"step", epoch.last_step},
            {"elapsed_s", (epoch.elapsed + epoch.evaluation).count()},
            {"evaluation_s", epoch.evaluation.count()},
            {"train_loss", loss_json(epoch.train_loss)}};
  if (epoch.test_loss) line["test_loss"] = loss_json(*epoch.test_loss);
  if (epoch.test_accuracy) line["test_accuracy"] = *epoch.test_accuracy;
  return dump_json_compact(line) + '\n';
}

std::string metrics_line(const EvaluationReport& evaluation) {
  Json line{{"evaluation", evaluation.epoch},
            {"step", evaluation.step},
            {"elapsed_s", (evaluation.elapsed + evaluation.time).count()},
            {"evaluation_s", evaluation.time.count()}};
  if (evaluation.test_loss) line["test_loss"] = loss_json(*evaluation.test_loss);
  if (evaluation.test_accuracy) line["test_accuracy"] = *evaluation.test_accuracy;
  return dump_json_compact(line) + '\n';
}

}  // namespace pp::run
