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
  return json;
}

LostAttempt read_lost_attempt(ObjectReader& reader) {
  LostAttempt lost{.how = reader.text("how"),
                   .first_step = reader.integer("first_step"),
                   .steps_done = reader.integer("steps_done"),
                   .checkpoint = std::nullopt,
                   .time = Seconds(reader.number("seconds", kTimes))};
  if (reader.has("checkpoint_step")) lost.checkpoint = reader.integer("checkpoint_step");
  return lost;
}

}  // namespace pp::run
