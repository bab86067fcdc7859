#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/context.h"
#include "librun/infer/report.h"

namespace pp::run {

Json to_json(const InferReport& report) {
  Json workers = Json::array();
  for (const InferWorker& worker : report.workers) {
    workers.push_back({{"id", number(worker.id)},
                       {"busy_s", worker.busy.count()},
                       {"idle_fraction", worker.idle_fraction},
                       {"peak_bytes", worker.peak.value}});
  }
  Json forwards = Json::array();
  for (const OpTime& time : report.op_times) {
    forwards.push_back({{"stage", number(time.stage)},
                        {"count", time.count},
                        {"predicted_s", time.predicted.count()},
                        {"median_s", time.median.count()}});
  }
  Json json{{"format", "pp.inference"},
            {"version", 1},
            {"context", context_json(report.context)},
            {"plan_hash", report.plan_hash},
            {"settings", to_json(report.settings)},
            {"seed", report.seed},
            {"exit_reason", report.exit_reason},
            {"samples", report.samples},
            {"micro_batch", report.micro_batch},
            {"passes", report.passes},
            {"elapsed_s", report.elapsed.count()},
            {report.tokens ? "tokens_per_s" : "samples_per_s", report.per_s},
            {"latency_s",
             {{"median", report.latency.median.count()},
              {"p95", report.latency.p95.count()},
              {"largest", report.latency.largest.count()}}},
            {"workers", std::move(workers)},
            {"forwards", std::move(forwards)}};
  if (report.tokens) json["tokens"] = *report.tokens;
  return json;
}

}  // namespace pp::run
