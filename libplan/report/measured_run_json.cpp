// The few keys of pp.report that calibrate a profile; all of them stand in librun/report/report_json.cpp, which
// a planner without the runtime does not have.
#include <limits>
#include <nlohmann/json.hpp>

#include "libplan/report/calibration.h"
#include "libprofile/core/hash.h"

namespace pp::plan {
namespace {

void check_format(ObjectReader& reader) {
  const std::string format = reader.text("format");
  if (format != "pp.report") reader.fail("format", "is \"" + format + "\"; a run's report is \"pp.report\"");
  const std::int64_t version = reader.integer("version");
  if (version != 1) reader.fail("version", "is " + std::to_string(version) + "; this program reads version 1");
}

MeasuredRun::Operation read_operation(ObjectReader& reader, const Plan& plan) {
  MeasuredRun::Operation operation;
  operation.kind = reader.enumerator<OpKind>("kind");
  operation.stage = StageId{
      static_cast<int>(reader.integer("stage", {.max = static_cast<std::int64_t>(plan.stages.size()) - 1}))};
  reader.integer("count");
  reader.number("predicted_s");
  operation.median = Seconds(reader.number("median_s"));
  if (reader.has("replica_medians_s")) {
    const std::vector<double> medians = reader.numbers("replica_medians_s");
    const std::size_t replicas = plan.stages[index(operation.stage)].workers.size();
    if (medians.size() != replicas)
      reader.fail("replica_medians_s", "must be " + std::to_string(replicas) +
                                           " as the stage has workers, found " +
                                           std::to_string(medians.size()));
    for (const double median : medians) operation.replicas.emplace_back(median);
  }
  return operation;
}

}  // namespace

MeasuredRun parse_measured_run(std::string_view text) {
  const Json json = parse_json(text);
  ObjectReader reader(json, "");
  check_format(reader);
  MeasuredRun run;
  run.hash = content_hash(dump_json_compact(json));
  const Json& plan = reader.raw("plan");
  with_context("/plan", [&] {
    run.plan = plan_from_json(plan);
    check_plan(run.plan);
  });
  reader.objects("op_times",
                 [&](ObjectReader& row) { run.operations.push_back(read_operation(row, run.plan)); });
  return run;
}

}  // namespace pp::plan
