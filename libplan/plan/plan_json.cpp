// The keys of pp.plan.
#include <nlohmann/json.hpp>

#include "libplan/plan/plan.h"
#include "libprofile/core/shared_fields.h"

namespace pp::plan {

namespace {

// --- training and schedule

/// A description that knows one value: no micro-batch is split over replicas.
constexpr std::string_view kReplicaRouting = "round_robin";
constexpr ValueType kRouting{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void*) {
          const std::string text = detail::text_at(json, pointer);
          if (text == kReplicaRouting) return;
          detail::fail_at(pointer, "is \"" + text + "\"; replicas take turns, write \"" +
                                       std::string(kReplicaRouting) + "\" or leave it out");
        },
    .write = [](const Field&, const void*) -> Json { return kReplicaRouting; },
    .schema = [](const Field&) { return detail::names_schema({std::string(kReplicaRouting)}); }};

void check_products(const Training& training, ObjectReader& reader) {
  require_bfloat16(training.products, training.dtype, reader);
}
void check_autocast(const Training& training, ObjectReader& reader) {
  require_float32(training.autocast, training.dtype, reader);
}
void check_kernels(Training& training, ObjectReader& reader) { sort_kernels(training.kernels, reader); }

constexpr Object kTraining{
    "training",
    key<&Training::mini_batch>("mini_batch", {.min = 1}),
    key<&Training::micro_batches>("micro_batches", {.min = 1}),
    key<&Training::dtype>("dtype", kWeightType),
    key<&Training::optimizer>("optimizer"),
    whole<Training>("replica_routing", kRouting),
    optional<&Training::precision>("precision"),
    optional<&Training::shard>("shard"),
    optional<&Training::products>("products"),
    check<check_products>(),
    optional<&Training::memory_format>("memory_format"),
    optional<&Training::autocast>("autocast"),
    check<check_autocast>(),
    optional<&Training::kernels>("kernels", kKernel),
    check<check_kernels>(),
};

constexpr Object kSchedule{
    "schedule",
    key<&ScheduleInfo::name>("name"),
    key<&ScheduleInfo::weight_policy>("weight_policy"),
    defaulted<&ScheduleInfo::recompute>("recompute"),
    defaulted<&ScheduleInfo::chunks_per_worker>("chunks_per_worker", {.min = 1}),
};

// --- stages and workers

constexpr Object kStage{
    "stage",
    key<&Stage::layers>("layers"),
    key<&Stage::workers>("workers"),
    defaulted<&Stage::recompute>("recompute"),
};

constexpr Object kTied{
    "tied",
    key<&TiedParameter::parameter>("parameter"),
    key<&TiedParameter::layers>("layers"),
    key<&TiedParameter::stages>("stages"),
};

constexpr ValueType kProgram{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          const std::string text = detail::text_at(json, pointer);
          with_context(pointer, [&] { *static_cast<Program*>(to) = parse_program(text); });
        },
    .write = [](const Field&, const void* from) -> Json { return to_text(*static_cast<const Program*>(from)); },
    .schema = kText.schema,
    .expected = kText.expected};

constexpr Object kStream{
    "stream",
    key<&Stream::prologue>("prologue", kProgram),
    key<&Stream::body>("body", kProgram),
    key<&Stream::period>("period", {.min = 1}),
};

void check_program(Worker&, ObjectReader& reader) {
  if (reader.has("stream") == reader.has("program")) reader.fail("needs either \"program\" or \"stream\"");
}
bool has_list(const Worker& worker) { return !worker.program.stream; }

constexpr Object kWorker{
    "worker",
    key<&Worker::id>("id"),
    key<&Worker::device>("device"),
    defaulted<&Worker::rank>("rank"),
    check<check_program>(),
    optional<&Worker::program, &WorkerProgram::stream>("stream", kStream),
    defaulted<&Worker::program, &WorkerProgram::program>("program", kProgram).written_if<has_list>(),
};

// --- what is promised

constexpr Object kParts{
    "predicted_parts",
    key<&MemoryPeak::weights>("weights"),
    key<&MemoryPeak::gradients>("gradients"),
    key<&MemoryPeak::optimizer>("optimizer"),
    key<&MemoryPeak::versions>("versions"),
    key<&MemoryPeak::saved>("saved"),
    key<&MemoryPeak::boundary>("boundary"),
    key<&MemoryPeak::workspace>("workspace"),
};

constexpr Object kPredictedWorker{
    "predicted_worker",
    key<&WorkerPrediction::busy>("busy_s"),
    key<&WorkerPrediction::memory, &MemoryPeak::peak>("peak_bytes"),
    key<&WorkerPrediction::memory>("parts", kParts),
};

constexpr Object kLink{
    "predicted_link",
    key<&LinkPrediction::from>("from"),
    key<&LinkPrediction::to>("to"),
    key<&LinkPrediction::bytes_per_step>("bytes_per_step"),
};

constexpr Object kFirst{
    "first_times",
    key<&FirstTimes::forward>("forward_s"),
    key<&FirstTimes::backward>("backward_s"),
    key<&FirstTimes::weight_gradient>("weight_gradient_s"),
};

constexpr Object kSpreadOf{
    "spread_of",
    key<&Spread::below>("below_s"),
    key<&Spread::above>("above_s"),
    key<&Spread::shift>("shift_s", {.min = -kMostNumber, .max = kMostNumber}),
};

constexpr Object kSpread{
    "spread",
    key<&StageSpread::forward>("forward", kSpreadOf),
    key<&StageSpread::backward>("backward", kSpreadOf),
    key<&StageSpread::input_gradient>("input_gradient", kSpreadOf),
    key<&StageSpread::weight_gradient>("weight_gradient", kSpreadOf),
    key<&StageSpread::recompute>("recompute", kSpreadOf),
    key<&StageSpread::update>("update", kSpreadOf),
};

void check_frozen(const StageCosts& costs, ObjectReader& reader) {
  if (reader.has("frozen_bytes")) reader.integer("frozen_bytes", {.max = costs.weights.value});
}

constexpr Object kStageCosts{
    "predicted_stage",
    key<&StageCosts::forward>("forward_s"),
    key<&StageCosts::backward>("backward_s"),
    key<&StageCosts::input_gradient>("input_gradient_s"),
    key<&StageCosts::weight_gradient>("weight_gradient_s"),
    key<&StageCosts::recompute>("recompute_s"),
    key<&StageCosts::all_reduce>("all_reduce_s"),
    key<&StageCosts::update>("update_s"),
    key<&StageCosts::weights>("weights_bytes"),
    key<&StageCosts::gradients>("gradients_bytes"),
    key<&StageCosts::optimizer>("optimizer_bytes"),
    key<&StageCosts::saved>("saved_bytes"),
    defaulted<&StageCosts::again>("again_bytes"),
    defaulted<&StageCosts::again_split>("again_split_bytes"),
    key<&StageCosts::input>("input_bytes"),
    key<&StageCosts::boundary>("boundary_bytes"),
    key<&StageCosts::workspace>("workspace_bytes"),
    key<&StageCosts::versions>("versions", {.min = 1}),
    check<check_frozen>(),
    optional<&StageCosts::frozen>("frozen_bytes"),
    optional<&StageCosts::first>("first", kFirst),
    optional<&StageCosts::waiting>("waiting_bytes"),
    optional<&StageCosts::hideable>("hideable_s"),
    optional<&StageCosts::spread>("spread", kSpread),
    optional<&StageCosts::load>("load_s"),
    optional<&StageCosts::load_state>("load_state_s"),
    optional<&StageCosts::evict>("evict_s"),
};

constexpr Object kEdge{
    "predicted_edge",
    key<&StageEdge::from>("from"),
    key<&StageEdge::to>("to"),
    key<&StageEdge::activation>("activation_bytes"),
    key<&StageEdge::gradient>("gradient_bytes"),
    key<&StageEdge::activation_tensors>("activation_tensors"),
    key<&StageEdge::gradient_tensors>("gradient_tensors"),
};

constexpr NumberRange kScales{.min = std::numeric_limits<double>::min(), .max = kMostNumber};
bool swaps(const Prediction& prediction) { return prediction.swap.bandwidth.value > 0; }

constexpr Object kPrediction{
    "predicted",
    key<&Prediction::step>("step_s"),
    optional<&Prediction::expected_step>("expected_step_s"),
    key<&Prediction::makespan>("makespan_s"),
    key<&Prediction::samples_per_s>("samples_per_s"),
    key<&Prediction::bubble_fraction>("bubble_fraction", kShare),
    key<&Prediction::workers>("workers", kPredictedWorker),
    key<&Prediction::links>("links", kLink),
    key<&Prediction::stages>("stages", kStageCosts),
    key<&Prediction::edges>("edges", kEdge),
    key<&Prediction::micro_batch_scale>("micro_batch_scale", kScales),
    optional<&Prediction::micro_batch_bytes>("micro_batch_bytes", kScales),
    key<&Prediction::all_reduce_overlap>("all_reduce_overlap", kShare),
    optional<&Prediction::swap, &SwapLink::bandwidth>("swap_bandwidth"),
    key<&Prediction::swap, &SwapLink::overlap>("swap_overlap", kShare).given<swaps>(),
    optional<&Prediction::tied_all_reduce>("tied_all_reduce_s"),
};

// --- why this plan

constexpr Object kCertificate{
    "certificate",
    key<&Certificate::objective>("objective_s"),
    key<&Certificate::lower_bound>("lower_bound_s"),
    key<&Certificate::gap>("gap"),
    key<&Certificate::search>("search"),
};

constexpr Object kAlternative{
    "alternative",
    key<&Alternative::schedule>("schedule"),
    key<&Alternative::stages>("stages"),
    key<&Alternative::replicas>("replicas"),
    key<&Alternative::micro_batches>("micro_batches", {.min = 1}),
    key<&Alternative::step>("step_s"),
    key<&Alternative::peak>("peak_bytes"),
    defaulted<&Alternative::recompute>("recompute"),
    key<&Alternative::why_not>("why_not"),
    optional<&Alternative::expected_step>("expected_step_s"),
    optional<&Alternative::cores_per_device>("cores_per_device", {.min = 1}),
    optional<&Alternative::tensor_degree>("tensor_degree", {.min = 1}),
    optional<&Alternative::context_degree>("context_degree", {.min = 1}),
    optional<&Alternative::expert_degree>("expert_degree", {.min = 1}),
    optional<&Alternative::shard_degree>("shard_degree", {.min = 1}),
};

constexpr NumberRange kFactors{.min = 1e-6, .max = 1e6};

constexpr Object kLayerCorrection{
    "layer_correction",
    key<&LayerCorrection::forward>("forward", kFactors),
    key<&LayerCorrection::backward>("backward", kFactors),
    key<&LayerCorrection::input_gradient>("input_gradient", kFactors),
    key<&LayerCorrection::weight_gradient>("weight_gradient", kFactors),
    optional<&LayerCorrection::layer>("layer"),
};

constexpr Object kUpdateCorrection{
    "update_correction",
    key<&UpdateCorrection::optimizer>("optimizer"),
    key<&UpdateCorrection::factor>("factor", kFactors),
};

constexpr Object kMeasuredSpeed{
    "measured_speed",
    key<&MeasuredSpeed::device>("device"),
    key<&MeasuredSpeed::node>("node"),
    key<&MeasuredSpeed::speed>("speed", kFactors),
};

constexpr Object kCalibration{
    "calibration",
    key<&Calibration::reports>("reports"),
    key<&Calibration::least>("least_factor"),
    key<&Calibration::largest>("largest_factor"),
    optional<&Calibration::layers>("layers", kLayerCorrection),
    optional<&Calibration::loss>("loss", kLayerCorrection),
    optional<&Calibration::updates>("updates", kUpdateCorrection),
    optional<&Calibration::devices>("devices", kMeasuredSpeed),
};

constexpr Object kMachine{
    "machine",
    key<&Machine::devices>("devices", {.min = 1}),
    key<&Machine::cores_per_device>("cores_per_device"),
    key<&Machine::profile_hash>("profile_hash"),
    optional<&Machine::tensor_degree>("tensor_degree", {.min = 1}),
    optional<&Machine::context_degree>("context_degree", {.min = 1}),
    optional<&Machine::expert_degree>("expert_degree", {.min = 1}),
    optional<&Machine::shard_degree>("shard_degree", {.min = 1}),
    optional<&Machine::step>("step_s"),
    optional<&Machine::plan>("plan"),
    optional<&Machine::verdict>("verdict"),
};

/// Follows from the rest; printed for programs.
constexpr ValueType kThroughput{.schema = [](const Field&) -> Json { return {{"type", "object"}}; }};

constexpr Object kPlan{
    "plan",
    defaulted<&Plan::context>("context"),
    key<&Plan::model>("model", kModel),
    defaulted<&Plan::profile_hash>("profile_hash"),
    defaulted<&Plan::cluster_hash>("cluster_hash"),
    key<&Plan::training>("training", kTraining),
    key<&Plan::schedule>("schedule", kSchedule),
    key<&Plan::devices>("devices", kDevice),
    defaulted<&Plan::levels>("levels", kLevel),
    key<&Plan::stages>("stages", kStage),
    defaulted<&Plan::tied>("tied", kTied),
    key<&Plan::workers>("workers", kWorker),
    defaulted<&Plan::predicted>("predicted", kPrediction),
    defaulted<&Plan::certificate>("certificate", kCertificate),
    defaulted<&Plan::alternatives>("alternatives", kAlternative),
    optional<&Plan::calibration>("calibration", kCalibration),
    optional<&Plan::machines>("machines", kMachine),
    optional<&Plan::tensor_degree>("tensor_degree", {.min = 1}),
    optional<&Plan::context_degree>("context_degree", {.min = 1}),
    optional<&Plan::expert_degree>("expert_degree", {.min = 1}),
    optional<&Plan::shard_group, &ShardGroup::degree>("shard_degree", {.min = 1}),
    optional<&Plan::shard_group, &ShardGroup::sharding>("sharding"),
    optional<&Plan::peak_flops_per_s>("peak_flops_per_s", {1e6, 1e18}),
    looked_at<Plan>("throughput", kThroughput),
};

}  // namespace

Keys plan_keys() { return keys_of(kPlan); }

Plan plan_from_json(const Json& json) { return document_from_json(kPlan, json); }

Json to_json(const Plan& plan) { return document_json(kPlan, plan); }

Plan parse_plan(std::string_view text) { return plan_from_json(parse_json(text)); }

}  // namespace pp::plan
