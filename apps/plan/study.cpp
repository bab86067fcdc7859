// pp-plan study: time(m) and efficiency of a pipeline's forwards, from printed stage times or from a profile.
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/plan/commands.h"
#include "apps/plan/planning_options.h"
#include "libplan/report/profile_study.h"

namespace pp::plan_tool {
namespace {

struct StudyOptions {
  std::string input;
  ClusterOptions cluster;
  plan::PlanRequest request;
  std::string cuts;
  std::string micro_batches;
  std::string csv;
};

/// So that columns are as exact as the tables that are studied.
std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string milliseconds(Seconds time) { return fixed(1e3 * time.count(), 3); }

std::string efficiency(double share) { return fixed(100 * share, plan::kEfficiencyDigits) + " %"; }

std::string printed(const plan::CheckedFigure& figure) {
  switch (figure.verdict) {
    case plan::Printed::agrees: break;
    case plan::Printed::cut_off: return efficiency(figure.printed) + ", cut off";
    case plan::Printed::wrong: return efficiency(figure.printed) + ", corrected";
  }
  return efficiency(figure.printed);
}

std::string rows_text(const plan::StudyTable& study) {
  const bool checked = std::ranges::any_of(study.rows, [](const auto& row) { return row.printed.has_value(); });
  std::vector<cli::Column> columns{{"M"}};
  for (std::size_t s = 0; s < study.rows.front().stages.size(); ++s)
    columns.push_back({"S" + std::to_string(s) + " ms"});
  columns.insert(columns.end(), {{"time ms"}, {"serial ms"}, {"efficiency"}});
  if (checked) columns.push_back({"printed", cli::Align::left});
  cli::Table table(std::move(columns));
  for (const plan::StudyRow& row : study.rows) {
    std::vector<std::string> cells{std::to_string(row.micro_batches)};
    for (const Seconds stage : row.stages) cells.push_back(milliseconds(stage));
    cells.insert(cells.end(), {milliseconds(row.time), milliseconds(row.serial), efficiency(row.efficiency)});
    if (checked) cells.push_back(row.printed ? printed(*row.printed) : "-");
    table.add(std::move(cells));
  }
  return table.text();
}

std::string course_text(plan::Course course) {
  switch (course) {
    case plan::Course::falls: return "time falls with M, so that more may be faster";
    case plan::Course::rises: return "time rises with M";
    case plan::Course::falls_then_rises: return "time falls until there, then rises";
    case plan::Course::mixed: break;
  }
  return "time goes up and down";
}

std::string table_text(const plan::StudyTable& table) {
  const plan::StudyRow& best = table.rows[table.best];
  std::string text = cli::shown(table.title) + '\n' + rows_text(table) + "mean efficiency " +
                     efficiency(table.mean_efficiency);
  if (table.printed_mean) text += ", printed " + printed(*table.printed_mean);
  text += "\nbest M = " + std::to_string(best.micro_batches) + ": " + milliseconds(best.time) + " ms; " +
          course_text(table.course) + '\n';
  if (!table.remark.empty()) text += table.remark + '\n';
  return text;
}

std::string study_text(const plan::PipelineStudy& study) {
  std::string text = cli::shown(study.name) + ": " + study.source + '\n';
  for (const plan::StudyTable& table : study.tables) text += '\n' + table_text(table);
  return text +
         "\nM micro-batches; S: a stage's time for one. time = sum of S + (M-1) max S; serial = M times the "
         "sum;\n"
         "efficiency = sum of S / (stages * max S)\n";
}

/// What says how a profile is cut and run has no meaning for stage times, which say it all.
void refuse_profile_options(const StudyOptions& options) {
  for (const auto& [option, given] : {std::pair{"--stages", options.request.stages.has_value()},
                                      {"--cuts", !options.cuts.empty()},
                                      {"--mini-batch", options.request.mini_batch > 0},
                                      {"--micro-batches", !options.micro_batches.empty()},
                                      {"the machine", has_cluster(options.cluster)},
                                      {"--extrapolate", options.request.extrapolate},
                                      {"--linear-batch", options.request.linear_batch},
                                      {"--force-units", options.request.force_units}}) {
    if (!given) continue;
    throw Error(ErrorKind::usage, cli::input_name(options.input) + " has the times of the stages; leave " +
                                      option + " out, or give a profile");
  }
}

plan::StageTimeTables times_of(const StudyOptions& options, const Profile& profile) {
  plan::PlanRequest request = options.request;
  if (!options.cuts.empty()) request.cuts = cli::parse_counts(options.cuts, ',', "--cuts");
  std::vector<int> counts;
  if (!options.micro_batches.empty()) counts = cli::parse_counts(options.micro_batches, ',', "--micro-batches");
  std::optional<Cluster> cluster;
  if (has_cluster(options.cluster)) cluster = load_cluster(options.cluster, profile);
  return plan::profile_stage_times(profile, cluster, request, counts);
}

plan::StageTimeTables load_times(const StudyOptions& options) {
  auto input = cli::load(options.input, plan::parse_study_input);
  if (const auto* profile = std::get_if<Profile>(&input)) return times_of(options, *profile);
  refuse_profile_options(options);
  return std::get<plan::StageTimeTables>(std::move(input));
}

void run_study(const StudyOptions& options, const cli::Shell& shell) {
  const plan::PipelineStudy study = plan::study(load_times(options));
  cli::Output csv(options.csv);
  if (csv.wanted()) csv.write(plan::study_csv(study));
  if (!csv.is_stdout()) std::cout << (shell.json ? dump_json(plan::to_json(study)) : study_text(study));
}

}  // namespace

void add_study(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<StudyOptions>();
  const cli::Command command = app.add_subcommand(
      "study", "time and efficiency of forwards by formula, the best number of micro-batches");
  command.add_option("input", options->input, "a profile.json, or the times of stages: stage-times.json")
      .required()
      .type_name("FILE");
  command.add_option("--csv", options->csv, "write the rows as CSV; - for stdout").type_name("FILE");
  add_cluster_options(command, options->cluster);
  add_mini_batch(command, options->request);
  command
      .add_option("--micro-batches", options->micro_batches,
                  "counts per mini-batch; default all profiled sizes that divide it")
      .type_name("M,M")
      .group("Training");
  add_stages(command, options->request);
  add_cuts(command, options->cuts);
  add_profile_options(command, options->request);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan study configs/study/vgg16-report.json",
      "pp-plan study profile.json --cluster cluster.json --mini-batch 64 --stages 2",
      "pp-plan study profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --cuts 3,6,9 --csv -"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { run_study(*options, shell); });
}

}  // namespace pp::plan_tool
