// pp-profile links: what handing a tensor from one device to another costs.
#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "libprofile/measure/profiler.h"
#include "librun/transport/link_meter.h"

namespace pp::profile_tool {
namespace {

struct Options {
  std::string devices = "cpu:2";
  std::string output;
};

/// `cpu:2` is two devices of one core, `cpu:2x3` two of three. Throws pp::Error (usage) with the forms.
run::LinkOptions parse_devices(const std::string& text) {
  if (!text.starts_with("cpu:")) {
    throw Error(ErrorKind::usage,
                "--devices: \"" + text + "\" is not of the form cpu:2 (devices) or cpu:2x1 (devices x cores)");
  }
  const std::vector<int> counts = cli::parse_counts(text.substr(4), 'x', "--devices");
  run::LinkOptions options;
  options.devices = counts.front();
  if (counts.size() > 1) options.cores_per_device = counts[1];
  return options;
}

void print(const Cluster& cluster) {
  for (const Level& level : cluster.levels) {
    std::cout << "level " << level.name << ": " << level.devices << " devices, latency "
              << to_text(level.latency) << ", bandwidth " << to_text(level.bandwidth)
              << ", largest error of the fit " << cli::percent(level.fit_residual) << '\n';
    cli::Table table({{"message"}, {"median us"}, {"16 % us"}, {"84 % us"}, {"fit us"}, {"samples"}});
    for (const LinkSample& sample : level.samples) {
      const auto us = [](Seconds time) { return cli::cell(1e6 * time.count()); };
      table.add({to_text(sample.size), us(sample.time.median), us(sample.time.low), us(sample.time.high),
                 us(level.latency + sample.size / level.bandwidth), std::to_string(sample.time.samples)});
    }
    std::cout << table.text();
  }
}

void links(const Options& options, const cli::Shell& shell) {
  const run::LinkOptions settings = parse_devices(options.devices);
  cli::Output output(options.output);
  Cluster cluster = [&] {
    cli::ProgressLine line(shell);
    return run::measure_links(settings, [&](double done) { line.update("measuring links", done, ""); });
  }();
  cluster.context.merge(profile::measurement_context());
  cluster.context["command"] = shell.command_line;
  const std::string text = dump_json(to_json(cluster));
  output.write(text);
  if (output.is_stdout()) return;
  if (shell.json) {
    std::cout << text;
  } else {
    print(cluster);
  }
}

}  // namespace

void add_links(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("links", "measure latency and bandwidth between devices");
  command
      ->add_option("--devices", options->devices,
                   "cpu:2 (two devices of one core), cpu:2x4 (two of four cores)")
      ->type_name("DEVICES");
  command->add_option("-o,--output", options->output, "write the cluster; - for stdout")->type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-profile links --devices cpu:2 -o cluster.json",
                                                             "pp-profile links --devices cpu:2x1 --json",
                                                             "pp-profile links -o - > cluster.json"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { links(*options, shell); });
}

}  // namespace pp::profile_tool
