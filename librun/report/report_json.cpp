// The only place that knows the keys of pp.report.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "libprofile/core/json_fields.h"
#include "librun/report/report.h"

namespace pp::run {

namespace {

/// A run may take 30 years.
constexpr NumberRange kTimes{0, 1e9};
constexpr NumberRange kDifferences{-1e9, 1e9};

void read_op(const Field&, const Json& json, const std::string& pointer, void* to) {
  const std::string text = detail::text_at(json, pointer);
  plan::Program program;
  try {
    program = plan::parse_program(text);
  } catch (const Error& error) {
    detail::fail_at(pointer, error.what());
  }
  if (program.size() != 1) detail::fail_at(pointer, "\"" + text + "\" must be one operation, such as F0.1");
  *static_cast<plan::Op*>(to) = program.front();
}
constexpr ValueType kOp{.read = read_op,
                        .write = [](const Field&, const void* from) -> Json {
                          return to_text(*static_cast<const plan::Op*>(from));
                        },
                        .schema = kText.schema,
                        .expected = kText.expected};

/// What is drawn of a report is looked up in its plan.
constexpr ValueType kPlan{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          with_context(pointer, [&] {
            auto& plan = *static_cast<plan::Plan*>(to) = plan::plan_from_json(json);
            plan::check_plan(plan);
          });
        },
    .write = [](const Field&, const void* from) { return to_json(*static_cast<const plan::Plan*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/plan"}};
    }};

/// Losses of steps.
constexpr ValueType kLosses{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          const auto is_loss = [](const Json& value) { return value.is_number() || value.is_null(); };
          if (!json.is_array() || !std::ranges::all_of(json, is_loss))
            detail::fail_at(pointer, "must be an array of numbers");
          for (const Json& value : json)
            static_cast<std::vector<double>*>(to)->push_back(
                value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
        },
    .write =
        [](const Field&, const void* from) {
          Json losses = Json::array();
          for (const double loss : *static_cast<const std::vector<double>*>(from))
            losses.push_back(loss_json(loss));
          return losses;
        },
    .schema = [](const Field& field) -> Json {
      return {{"type", "array"}, {"items", kLoss.schema(field)}};
    }};

// --- over the run

constexpr Object kEpoch{
    "epoch",
    key<&EpochReport::epoch>("epoch"),
    key<&EpochReport::train_loss>("train_loss", kLoss),
    optional<&EpochReport::test_loss>("test_loss", kLoss),
    optional<&EpochReport::test_accuracy>("test_accuracy", kShare),
    key<&EpochReport::samples_per_s>("samples_per_s"),
    key<&EpochReport::last_step>("last_step"),
    key<&EpochReport::elapsed>("elapsed_s", kTimes),
    key<&EpochReport::evaluation>("evaluation_s", kTimes),
};

constexpr Object kEvaluation{
    "evaluation",
    key<&EvaluationReport::epoch>("epoch"),
    key<&EvaluationReport::step>("step"),
    optional<&EvaluationReport::test_loss>("test_loss", kLoss),
    optional<&EvaluationReport::test_accuracy>("test_accuracy", kShare),
    key<&EvaluationReport::elapsed>("elapsed_s", kTimes),
    key<&EvaluationReport::time>("evaluation_s", kTimes),
};

constexpr Object kBest{
    "best",
    key<&BestReport::step>("step"),
    key<&BestReport::test_loss>("test_loss", kAnyNumber),
    key<&BestReport::evaluations_since>("evaluations_since"),
    optional<&BestReport::checkpoint>("checkpoint"),
};

constexpr Object kResumedFrom{
    "resumed_from",
    key<&ResumedFrom::checkpoint>("checkpoint"),
    key<&ResumedFrom::step>("step"),
};

constexpr Object kLostAttempt{
    "lost_attempt",
    key<&LostAttempt::how>("how"),
    key<&LostAttempt::first_step>("first_step"),
    key<&LostAttempt::steps_done>("steps_done"),
    key<&LostAttempt::time>("seconds", kTimes),
    optional<&LostAttempt::checkpoint>("checkpoint_step"),
    optional<&LostAttempt::plan>("plan"),
    optional<&LostAttempt::hosts>("hosts"),
    optional<&LostAttempt::to_next>("to_next_s", kTimes),
};

constexpr Object kSlowDevice{
    "slow_device",
    key<&SlowDevice::worker>("worker"),
    key<&SlowDevice::first_step>("first_step"),
    key<&SlowDevice::factor>("factor", {1e-9, 1e9}),
    optional<&SlowDevice::last_step>("last_step"),
};

constexpr Object kDeviation{
    "deviation",
    key<&Deviation::above_medians>("above_medians_s", kTimes),
    key<&Deviation::operation_count>("operation_count"),
    key<&Deviation::interrupted>("interrupted"),
    key<&Deviation::mean_excess>("mean_excess_s", kDifferences),
    key<&Deviation::first_steps>("first_steps"),
    key<&Deviation::first_excess>("first_excess_s", kDifferences),
    key<&Deviation::partial_steps>("partial_steps"),
    key<&Deviation::partial_step>("partial_step_s", kTimes),
    optional<&Deviation::operations>("operations_s", kDifferences),
};

void check_choice(CheckpointsReport& checkpoints, ObjectReader& reader) {
  if (!checkpoints.choice) return;
  reader.number("cost_s");
  reader.number("interval_s");
}

constexpr Object kCheckpoints{
    "written_checkpoints",
    key<&CheckpointsReport::written>("written"),
    key<&CheckpointsReport::size>("size_bytes"),
    key<&CheckpointsReport::pause>("pause_s"),
    key<&CheckpointsReport::write>("write_s"),
    optional<&CheckpointsReport::choice, &CheckpointChoice::cost>("cost_s"),
    optional<&CheckpointsReport::choice, &CheckpointChoice::interval>("interval_s"),
    check<check_choice>(),
};

constexpr Object kFrames{
    "frames",
    key<&FramesReport::period>("period_s", kTimes),
    key<&FramesReport::latency>("latency_s", kTimes),
    key<&FramesReport::delay>("delay"),
};

constexpr Object kReplicas{
    "replicas",
    key<&ReplicasReport::mean_staleness>("mean_staleness"),
    key<&ReplicasReport::largest_staleness>("largest_staleness"),
    key<&ReplicasReport::largest_lead>("largest_lead"),
    key<&ReplicasReport::pushed_per_step>("pushed_bytes_per_step"),
    key<&ReplicasReport::fetched_per_step>("fetched_bytes_per_step"),
};

// --- workers and operations

constexpr Object kSwaps{
    "swaps",
    key<&SwapsReport::count>("count"),
    key<&SwapsReport::bytes>("bytes"),
    key<&SwapsReport::time>("time_s", kTimes),
};

constexpr Object kGraphs{
    "graphs",
    key<&GraphCount::recorded>("recorded"),
    key<&GraphCount::replayed>("replayed"),
    key<&GraphCount::bytes>("bytes"),
};

constexpr Object kParts{
    "run_parts",
    key<&WorkerReport::weights>("weights"),
    key<&WorkerReport::gradients>("gradients"),
    key<&WorkerReport::optimizer>("optimizer"),
    key<&WorkerReport::versions>("versions"),
    key<&WorkerReport::saved>("saved"),
};

constexpr Object kWorker{
    "run_worker",
    key<&WorkerReport::id>("id"),
    key<&WorkerReport::busy>("busy_s", kTimes),
    key<&WorkerReport::bubble_fraction>("bubble_fraction", kShare),
    key<&WorkerReport::peak>("peak_bytes"),
    group("parts", kParts),
    key<&WorkerReport::peak_in_flight>("peak_in_flight"),
    key<&WorkerReport::peak_versions>("peak_versions"),
    key<&WorkerReport::sent_per_step>("sent_bytes_per_step"),
    optional<&WorkerReport::swaps_in>("swaps_in", kSwaps),
    optional<&WorkerReport::swaps_out>("swaps_out", kSwaps),
    optional<&WorkerReport::graphs>("graphs", kGraphs),
};

constexpr Object kOpTime{
    "op_time",
    key<&OpTime::kind>("kind"),
    key<&OpTime::stage>("stage"),
    key<&OpTime::count>("count"),
    key<&OpTime::predicted>("predicted_s", kTimes),
    key<&OpTime::median>("median_s", kTimes),
    optional<&OpTime::replicas>("replica_medians_s", kTimes),
};

constexpr Object kInstruction{
    "instruction",
    key<&InstructionReport::worker>("worker"),
    key<&InstructionReport::stage>("stage"),
    key<&InstructionReport::kind>("instruction"),
    key<&InstructionReport::predicted>("predicted_s", kTimes),
    key<&InstructionReport::median>("median_s", kTimes),
};

constexpr Object kComparison{
    "comparison",
    key<&Comparison::name>("name"),
    key<&Comparison::predicted>("predicted", kAnyNumber),
    key<&Comparison::measured>("measured", kAnyNumber),
    key<&Comparison::ratio>("ratio", kAnyNumber),
};

void check_steps(const StepHistory& history, ObjectReader& reader) {
  reader.integer("steps", {0, history.stride * static_cast<std::int64_t>(StepHistory::kMost)});
}

constexpr Object kHistory{
    "step_history",
    key<&StepHistory::stride>("steps_per_sample", {1, std::int64_t{1} << 40}),
    check<check_steps>(),
    key<&StepHistory::steps>("steps"),
    key<&StepHistory::time>("step_s", kTimes),
    key<&StepHistory::peak>("peak_bytes"),
};

constexpr Object kTimedOp{
    "timed_op",
    key<&TimedOp::event, &plan::OpEvent::worker>("worker"),
    key<&TimedOp::event, &plan::OpEvent::op>("op", kOp),
    key<&TimedOp::event, &plan::OpEvent::start>("start_s", kTimes),
    key<&TimedOp::event, &plan::OpEvent::end>("end_s", kTimes),
    key<&TimedOp::peak>("peak_bytes"),
    key<&TimedOp::held>("held_bytes"),
};

constexpr Object kTimedMessage{
    "timed_message",
    key<&plan::MessageEvent::from>("from"),
    key<&plan::MessageEvent::to>("to"),
    key<&plan::MessageEvent::producer>("producer", kOp),
    key<&plan::MessageEvent::bytes>("bytes"),
    key<&plan::MessageEvent::start>("start_s", kTimes),
    key<&plan::MessageEvent::end>("end_s", kTimes),
};

void check_last_steps(LastSteps& last, ObjectReader& reader) {
  if (!std::ranges::is_sorted(last.ops, {}, [](const TimedOp& op) { return op.event.start; }))
    reader.fail("ops", "must be in the order of start_s");
  if (reader.has("samples") && std::ssize(last.samples) != last.steps)
    reader.fail("samples", "must be as many as steps");
}

constexpr Object kLastSteps{
    "last_steps",
    key<&LastSteps::first_step>("first_step"),
    key<&LastSteps::steps>("steps", {0, 1000}),
    key<&LastSteps::ops>("ops", kTimedOp),
    key<&LastSteps::messages>("messages", kTimedMessage),
    optional<&LastSteps::samples>("samples"),
    check<check_last_steps>(),
};

// --- what stands in the report is of its plan

IntegerRange workers_of(const RunReport& report) { return {0, std::ssize(report.plan.workers) - 1}; }

void check_worker_ids(const RunReport& report, ObjectReader& reader) {
  look_at_each(reader, "workers", [&](ObjectReader& worker) { worker.integer("id", workers_of(report)); });
}

void check_workers(const RunReport& report, ObjectReader& reader) {
  if (report.workers.size() != report.plan.workers.size())
    reader.fail("workers", "must be " + std::to_string(report.plan.workers.size()) + " as in the plan, found " +
                               std::to_string(report.workers.size()));
}

void check_op_times(const RunReport& report, ObjectReader& reader) {
  const IntegerRange stages{0, std::ssize(report.plan.stages) - 1};
  look_at_each(reader, "op_times", [&](ObjectReader& row) { row.integer("stage", stages); });
  look_at_each(reader, "instructions", [&](ObjectReader& row) {
    row.integer("worker", workers_of(report));
    row.integer("stage", stages);
  });
}

void check_history(const RunReport& report, ObjectReader& reader) {
  const StepHistory& history = report.history;
  const auto samples = static_cast<std::size_t>((history.steps + history.stride - 1) / history.stride);
  look_at(reader, "history", [&](ObjectReader& member) {
    const auto check_size = [&](std::string_view key, std::size_t size) {
      if (size != samples)
        member.fail(key, "must have " + std::to_string(samples) + " samples of " +
                             std::to_string(history.stride) + " steps for its " +
                             std::to_string(history.steps));
    };
    check_size("step_s", history.time.size());
    const std::size_t workers = report.plan.workers.size();
    if (history.peak.size() != workers && samples > 0)
      member.fail("peak_bytes", "must have a list for each of the " + std::to_string(workers) + " workers");
    for (const std::vector<Bytes>& worker : history.peak) check_size("peak_bytes", worker.size());
  });
}

/// Each operation and message of the last steps: the keys of its workers, and of the operation.
void look_at_events(ObjectReader& reader,
                    const std::function<void(ObjectReader& event, std::string_view op,
                                             std::span<const std::string_view> workers)>& look) {
  constexpr std::array kOne{"worker"sv};
  constexpr std::array kTwo{"from"sv, "to"sv};
  look_at(reader, "last_steps", [&](ObjectReader& last) {
    look_at_each(last, "ops", [&](ObjectReader& event) { look(event, "op", std::span(kOne)); });
    look_at_each(last, "messages", [&](ObjectReader& event) { look(event, "producer", std::span(kTwo)); });
  });
}

void check_event_places(const RunReport& report, ObjectReader& reader) {
  look_at_events(reader, [&](ObjectReader& event, std::string_view, std::span<const std::string_view> workers) {
    for (const std::string_view worker : workers) event.integer(worker, workers_of(report));
    event.number("end_s", {event.number("start_s", kTimes), kTimes.max});
  });
}

void check_event_stages(const RunReport& report, ObjectReader& reader) {
  look_at_events(reader, [&](ObjectReader& event, std::string_view key, std::span<const std::string_view>) {
    const std::string text = event.text(key);
    const plan::Op op = plan::parse_program(text).front();
    const std::size_t stages = report.plan.stages.size();
    if (op.kind != plan::OpKind::tied_all_reduce && index(op.stage) >= stages)
      event.fail(key, "\"" + text + "\" is of no stage: the plan has " + std::to_string(stages));
  });
}

void check_slow_devices(const RunReport& report, ObjectReader& reader) {
  look_at_each(reader, "slow_devices", [&](ObjectReader& slow) { slow.integer("worker", workers_of(report)); });
}

constexpr Object kReport{
    "report",
    defaulted<&RunReport::context>("context"),
    key<&RunReport::plan_hash>("plan_hash"),
    key<&RunReport::plan>("plan", kPlan),
    key<&RunReport::settings>("settings", kSettings),
    key<&RunReport::exit_reason>("exit_reason"),
    key<&RunReport::seed>("seed", kSeed),
    key<&RunReport::steps>("steps"),
    key<&RunReport::skipped_steps>("skipped_steps"),
    key<&RunReport::step>("step_s", kTimes),
    key<&RunReport::samples_per_s>("samples_per_s"),
    key<&RunReport::bubble_fraction>("bubble_fraction", kShare),
    key<&RunReport::epochs>("epochs", kEpoch),
    check<check_worker_ids>(),
    key<&RunReport::workers>("workers", kWorker),
    check<check_workers>(),
    check<check_op_times>(),
    key<&RunReport::op_times>("op_times", kOpTime),
    key<&RunReport::comparisons>("comparisons", kComparison),
    key<&RunReport::step_losses>("step_losses", kLosses),
    key<&RunReport::history>("history", kHistory),
    check<check_history>(),
    check<check_event_places>(),
    key<&RunReport::last_steps>("last_steps", kLastSteps),
    check<check_event_stages>(),
    optional<&RunReport::instructions>("instructions", kInstruction),
    optional<&RunReport::evaluations>("evaluations", kEvaluation),
    optional<&RunReport::best>("best", kBest),
    optional<&RunReport::resumed>("resumed_from", kResumedFrom),
    optional<&RunReport::lost_attempts>("lost_attempts", kLostAttempt),
    check<check_slow_devices>(),
    optional<&RunReport::slow_devices>("slow_devices", kSlowDevice),
    optional<&RunReport::deviation>("deviation", kDeviation),
    optional<&RunReport::checkpoints>("checkpoints", kCheckpoints),
    optional<&RunReport::frames>("frames", kFrames),
    optional<&RunReport::replicas>("replicas", kReplicas),
};

}  // namespace

const ValueType kLoss{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          *static_cast<double*>(to) = json.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                     : detail::number_at(json, pointer, kAnyNumber);
        },
    .write = [](const Field&, const void* from) { return loss_json(*static_cast<const double*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"anyOf", {{{"type", "number"}}, {{"type", "null"}}}}};
    }};

Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(); }

Keys report_keys() { return keys_of(kReport); }

Json to_json(const RunReport& report) { return document_json(kReport, report); }

RunReport report_from_json(const Json& json) { return document_from_json(kReport, json); }

Json to_json(const LostAttempt& lost) { return pp::to_json(kLostAttempt, lost); }

LostAttempt read_lost_attempt(ObjectReader& reader) {
  LostAttempt lost;
  read_keys(keys_of(kLostAttempt), reader, &lost);
  return lost;
}

}  // namespace pp::run
