#include "librun/report/report_parts_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pp::run {

namespace {

plan::Op read_op(ObjectReader& reader, std::string_view key, const plan::Plan& plan) {
  const std::string text = reader.text(key);
  plan::Program program;
  try {
    program = plan::parse_program(text);
  } catch (const Error& error) {
    reader.fail(key, error.what());
  }
  if (program.size() != 1) reader.fail(key, "\"" + text + "\" must be one operation, such as F0.1");
  const plan::Op& op = program.front();
  const bool tied = op.kind == plan::OpKind::tied_all_reduce;
  if (!tied && index(op.stage) >= plan.stages.size())
    reader.fail(key, "\"" + text + "\" is of no stage: the plan has " + std::to_string(plan.stages.size()));
  return op;
}

void read_times(ObjectReader& reader, Seconds& start, Seconds& end) {
  start = Seconds(reader.number("start_s", kTimes));
  end = Seconds(reader.number("end_s", {start.count(), kTimes.max}));
}

TimedOp read_timed_op(ObjectReader& reader, const plan::Plan& plan) {
  TimedOp op;
  op.event.worker = read_worker_id(reader, "worker", plan.workers.size());
  op.event.op = read_op(reader, "op", plan);
  read_times(reader, op.event.start, op.event.end);
  op.peak = Bytes(reader.integer("peak_bytes"));
  op.held = Bytes(reader.integer("held_bytes"));
  return op;
}

plan::MessageEvent read_message(ObjectReader& reader, const plan::Plan& plan) {
  plan::MessageEvent message;
  message.from = read_worker_id(reader, "from", plan.workers.size());
  message.to = read_worker_id(reader, "to", plan.workers.size());
  message.producer = read_op(reader, "producer", plan);
  message.bytes = Bytes(reader.integer("bytes"));
  read_times(reader, message.start, message.end);
  return message;
}

template <class Id>
Id read_id(ObjectReader& reader, std::string_view key, std::size_t count) {
  return Id{static_cast<int>(reader.integer(key, {0, static_cast<std::int64_t>(count) - 1}))};
}

}  // namespace

WorkerId read_worker_id(ObjectReader& reader, std::string_view key, std::size_t workers) {
  return read_id<WorkerId>(reader, key, workers);
}

StageId read_stage_id(ObjectReader& reader, std::string_view key, std::size_t stages) {
  return read_id<StageId>(reader, key, stages);
}

Json to_json(const StepHistory& history) {
  Json json{{"steps_per_sample", history.stride}, {"steps", history.steps}, {"step_s", Json::array()}};
  for (const Seconds time : history.time) json["step_s"].push_back(time.count());
  Json& peaks = json["peak_bytes"] = Json::array();
  for (const std::vector<Bytes>& worker : history.peak) {
    Json& list = peaks.emplace_back(Json::array());
    for (const Bytes bytes : worker) list.push_back(bytes.value);
  }
  return json;
}

StepHistory read_history(ObjectReader& reader, std::size_t workers) {
  StepHistory history;
  history.stride = reader.integer("steps_per_sample", {1, std::int64_t{1} << 40});
  history.steps = reader.integer("steps", {0, history.stride * static_cast<std::int64_t>(StepHistory::kMost)});
  const auto samples = static_cast<std::size_t>((history.steps + history.stride - 1) / history.stride);
  const auto list = [&](const Json& json, std::string_view key, auto&& valid, auto&& take) {
    if (!json.is_array() || json.size() != samples)
      reader.fail(key, "must have " + std::to_string(samples) + " samples of " +
                           std::to_string(history.stride) + " steps for its " + std::to_string(history.steps));
    for (const Json& value : json) {
      if (!valid(value)) reader.fail(key, "must be numbers from 0, found " + value.dump());
      take(value);
    }
  };
  list(
      reader.raw("step_s"), "step_s",
      [](const Json& value) { return value.is_number() && value >= 0.0 && value <= kTimes.max; },
      [&](const Json& value) { history.time.push_back(Seconds(value.get<double>())); });
  const Json& peaks = reader.raw("peak_bytes");
  if (!peaks.is_array() || (peaks.size() != workers && samples > 0))
    reader.fail("peak_bytes", "must have a list for each of the " + std::to_string(workers) + " workers");
  for (const Json& worker : peaks) {
    std::vector<Bytes>& peak = history.peak.emplace_back();
    list(
        worker, "peak_bytes",
        [](const Json& value) {
          return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int64_t>::max();
        },
        [&](const Json& value) { peak.push_back(Bytes(value.get<std::int64_t>())); });
  }
  return history;
}

Json to_json(const LastSteps& last) {
  Json json{{"first_step", last.first_step},
            {"steps", last.steps},
            {"ops", Json::array()},
            {"messages", Json::array()}};
  for (const TimedOp& op : last.ops) {
    json["ops"].push_back({{"worker", number(op.event.worker)},
                           {"op", plan::to_text(op.event.op)},
                           {"start_s", op.event.start.count()},
                           {"end_s", op.event.end.count()},
                           {"peak_bytes", op.peak.value},
                           {"held_bytes", op.held.value}});
  }
  for (const plan::MessageEvent& message : last.messages) {
    json["messages"].push_back({{"from", number(message.from)},
                                {"to", number(message.to)},
                                {"producer", plan::to_text(message.producer)},
                                {"bytes", message.bytes.value},
                                {"start_s", message.start.count()},
                                {"end_s", message.end.count()}});
  }
  if (!last.samples.empty()) json["samples"] = last.samples;
  return json;
}

LastSteps read_last_steps(ObjectReader& reader, const plan::Plan& plan) {
  LastSteps last;
  last.first_step = reader.integer("first_step");
  last.steps = static_cast<int>(reader.integer("steps", {0, 1000}));
  reader.objects("ops", [&](ObjectReader& op) { last.ops.push_back(read_timed_op(op, plan)); });
  if (!std::ranges::is_sorted(last.ops, {}, [](const TimedOp& op) { return op.event.start; }))
    reader.fail("ops", "must be in the order of start_s");
  reader.objects("messages",
                 [&](ObjectReader& message) { last.messages.push_back(read_message(message, plan)); });
  if (!reader.has("samples")) return last;
  for (const std::int64_t samples : reader.integers("samples", {0, std::numeric_limits<int>::max()}))
    last.samples.push_back(static_cast<int>(samples));
  if (std::ssize(last.samples) != last.steps) reader.fail("samples", "must be as many as steps");
  return last;
}

Json to_json(const LostAttempt& lost) {
  Json json{{"how", lost.how},
            {"first_step", lost.first_step},
            {"steps_done", lost.steps_done},
            {"seconds", lost.time.count()}};
  if (lost.checkpoint) json["checkpoint_step"] = *lost.checkpoint;
  if (!lost.plan.empty()) json["plan"] = lost.plan;
  if (!lost.hosts.empty()) json["hosts"] = lost.hosts;
  if (lost.to_next) json["to_next_s"] = lost.to_next->count();
  return json;
}

LostAttempt read_lost_attempt(ObjectReader& reader) {
  LostAttempt lost{.how = reader.text("how"),
                   .first_step = reader.integer("first_step"),
                   .steps_done = reader.integer("steps_done"),
                   .checkpoint = std::nullopt,
                   .time = Seconds(reader.number("seconds", kTimes))};
  if (reader.has("checkpoint_step")) lost.checkpoint = reader.integer("checkpoint_step");
  if (reader.has("plan")) lost.plan = reader.text("plan");
  if (reader.has("hosts")) lost.hosts = reader.text("hosts");
  if (reader.has("to_next_s")) lost.to_next = Seconds(reader.number("to_next_s", kTimes));
  return lost;
}

}  // namespace pp::run
