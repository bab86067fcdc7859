#include "librun/report/lost_attempt.h"

#include <nlohmann/json.hpp>

#include "librun/report/report_parts_json.h"

namespace pp::run {

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
