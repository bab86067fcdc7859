// pp-run report: a report as tables again, or as a page for a browser.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/run/commands.h"
#include "apps/run/summary.h"
#include "librun/report/html.h"

namespace pp::run_tool {
namespace {

struct Options {
  std::string report;
  std::string html;
};

void report(const Options& options, const cli::Shell& shell) {
  const run::RunReport report =
      cli::load(options.report, [](std::string_view text) { return run::report_from_json(parse_json(text)); });
  cli::Output html(options.html);
  if (html.wanted()) html.write(run::report_html(report));
  if (html.is_stdout()) return;
  if (shell.json) {
    std::cout << dump_json_compact(run::to_json(report)) << '\n';
  } else if (!html.wanted()) {
    std::cout << summary(report);
  }
}

}  // namespace

void add_report(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command = app.add_subcommand("report", "print a report again, or write it as a page");
  command.add_option("report", options->report, "a report.json").required().type_name("REPORT");
  command.add_option("--html", options->html, "write one page for a browser, self-contained; - for stdout")
      .type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-run report report.json",
                                                             "pp-run report report.json --html report.html",
                                                             "pp-run report report.json --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { report(*options, shell); });
}

}  // namespace pp::run_tool
