// pp-run report: reports as tables again, or as a page for a browser.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/run/commands.h"
#include "apps/run/run_options.h"
#include "apps/run/summary.h"
#include "libprofile/core/text.h"
#include "librun/report/html.h"

namespace pp::run_tool {

namespace {

struct ReportOptions {
  std::vector<std::string> reports;
  std::string html;
};

void report(const ReportOptions& options, const cli::Shell& shell) {
  std::vector<run::RunReport> reports;
  for (const std::string& path : options.reports)
    reports.push_back(
        cli::load(path, [](std::string_view text) { return run::report_from_json(parse_json(text)); }));
  const bool several = reports.size() > 1;
  if (several && shell.json)
    throw Error(ErrorKind::usage, "--json prints one report, but " + std::to_string(reports.size()) +
                                      " are given; call pp-run report for each");
  cli::Output html(options.html);
  if (html.wanted()) {
    std::vector<run::NamedReport> named;
    for (std::size_t r = 0; r < reports.size(); ++r)
      named.push_back({cli::input_name(options.reports[r]), &reports[r]});
    html.write(run::report_html(named));
  }
  if (html.is_stdout()) return;
  if (shell.json) {
    std::cout << dump_json_compact(run::to_json(reports.front())) << '\n';
    return;
  }
  for (std::size_t r = 0; r < reports.size() && !html.wanted(); ++r) {
    if (several) std::cout << (r > 0 ? "\n" : "") << cli::input_name(options.reports[r]) << '\n';
    std::cout << summary(reports[r]);
  }
}

}  // namespace

void add_report(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<ReportOptions>();
  const cli::Command command = app.add_subcommand("report", "print reports again, or write them as a page");
  command.add_option("report", options->reports, "a report.json; several share the page's axes")
      .required()
      .type_name("REPORT");
  command.add_option("--html", options->html, "write one page for a browser, self-contained; - for stdout")
      .type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-run report report.json",
                                                             "pp-run report report.json --html report.html",
                                                             "pp-run report report.json --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { report(*options, shell); });
}

}  // namespace pp::run_tool
