#include "libplan/report/pipeline_study.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

StudyRow study(const StageTimeRow& times) {
  StudyRow row{.micro_batches = times.micro_batches, .stages = times.stages};
  std::vector<double> seconds;
  for (const Seconds stage : times.stages) seconds.push_back(stage.count());
  row.time = Seconds(forward_time(seconds, row.micro_batches));
  row.serial = row.micro_batches * std::accumulate(row.stages.begin(), row.stages.end(), Seconds(0));
  row.efficiency = partition_efficiency(seconds);
  if (times.printed) row.printed = check_printed(*times.printed, row.efficiency);
  return row;
}

bool is_step_up(const StudyRow& from, const StudyRow& to) { return to.time > (1 + kNoStep) * from.time; }
bool is_step_down(const StudyRow& from, const StudyRow& to) { return is_step_up(to, from); }

Course course_of(const std::vector<StudyRow>& rows, std::size_t best) {
  const auto turn = rows.begin() + static_cast<std::ptrdiff_t>(best);
  const bool steady = std::adjacent_find(rows.begin(), turn + 1, is_step_up) == turn + 1 &&
                      std::adjacent_find(turn, rows.end(), is_step_down) == rows.end();
  if (!steady) return Course::mixed;
  if (best + 1 == rows.size()) return Course::falls;
  return best == 0 ? Course::rises : Course::falls_then_rises;
}

StudyTable study(const StageTimeTable& times) {
  StudyTable table{.title = times.title, .remark = times.remark};
  for (const StageTimeRow& row : times.rows) {
    table.rows.push_back(study(row));
    table.mean_efficiency += table.rows.back().efficiency / static_cast<double>(times.rows.size());
  }
  if (times.printed_mean) table.printed_mean = check_printed(*times.printed_mean, table.mean_efficiency);
  const auto least = std::ranges::min_element(table.rows, {}, &StudyRow::time);
  table.best = at(least - table.rows.begin());
  table.course = course_of(table.rows, table.best);
  return table;
}

}  // namespace

PipelineStudy study(const StageTimeTables& times) {
  PipelineStudy result{times.name, times.source, {}};
  for (const StageTimeTable& table : times.tables) result.tables.push_back(study(table));
  return result;
}

CheckedFigure check_printed(double printed, double recomputed) {
  const double unit = 100 * std::pow(10, kEfficiencyDigits);
  const double digits = std::round(unit * printed);
  if (std::round(unit * recomputed) == digits) return {printed, Printed::agrees};
  return {printed, std::floor(unit * recomputed) == digits ? Printed::cut_off : Printed::wrong};
}

}  // namespace pp::plan
