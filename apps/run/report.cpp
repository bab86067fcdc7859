// pp-run report: reports as tables again, or as a page for a browser.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/cli/options.h"
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

constexpr auto kReports =
    options(option<&ReportOptions::reports>("report", "a report.json; several share the page's axes",
                                            {.value = "REPORT", .required = true}),
            option<&ReportOptions::html>("--html", "write one page for a browser, self-contained; - for stdout",
                                         {.value = "FILE"}));

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
  cli::add_command(app, shell, "report", "print reports again, or write them as a page", kReports, report,
                   {"pp-run report report.json", "pp-run report report.json --html report.html",
                    "pp-run report report.json --json"});
}

}  // namespace pp::run_tool
