// The keys of pp.inference.
#include <nlohmann/json.hpp>

#include "libprofile/core/json_fields.h"
#include "librun/infer/report.h"

namespace pp::run {

namespace {

constexpr Object kLatency{
    "latency",
    key<&Latency::median>("median"),
    key<&Latency::p95>("p95"),
    key<&Latency::largest>("largest"),
};

constexpr Object kInferWorker{
    "inference_worker",
    key<&InferWorker::id>("id"),
    key<&InferWorker::busy>("busy_s"),
    key<&InferWorker::idle_fraction>("idle_fraction", kShare),
    key<&InferWorker::peak>("peak_bytes"),
};

constexpr Object kForward{
    "inference_forward",
    key<&OpTime::stage>("stage"),
    key<&OpTime::count>("count"),
    key<&OpTime::predicted>("predicted_s"),
    key<&OpTime::median>("median_s"),
};

bool generates(const InferReport& report) { return report.tokens.has_value(); }
bool computes_outputs(const InferReport& report) { return !report.tokens; }

constexpr Object kInference{
    "inference",
    defaulted<&InferReport::context>("context"),
    key<&InferReport::plan_hash>("plan_hash"),
    key<&InferReport::settings>("settings", kSettings),
    key<&InferReport::seed>("seed", kSeed),
    key<&InferReport::exit_reason>("exit_reason"),
    key<&InferReport::samples>("samples"),
    key<&InferReport::micro_batch>("micro_batch", {.min = 1}),
    key<&InferReport::passes>("passes"),
    key<&InferReport::elapsed>("elapsed_s"),
    key<&InferReport::per_s>("samples_per_s").given<computes_outputs>(),
    key<&InferReport::per_s>("tokens_per_s").given<generates>(),
    key<&InferReport::latency>("latency_s", kLatency),
    key<&InferReport::workers>("workers", kInferWorker),
    key<&InferReport::op_times>("forwards", kForward),
    optional<&InferReport::tokens>("tokens"),
};

}  // namespace

Keys inference_keys() { return keys_of(kInference); }

Json to_json(const InferReport& report) { return document_json(kInference, report); }

}  // namespace pp::run
