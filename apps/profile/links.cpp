// pp-profile links: what handing a tensor from one device to another costs.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/ranks.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "apps/profile/run_ranks.h"
#include "libplan/cost/links.h"
#include "libprofile/core/text.h"
#include "libprofile/device/process.h"
#include "librun/links/link_levels.h"
#include "librun/links/local_links.h"
#include "librun/links/message_cost.h"
#include "librun/links/rank_links.h"
#include "librun/links/sum_overlap.h"

namespace pp::profile_tool {
namespace {

struct LinksOptions {
  std::string devices;  ///< empty: cpu:2x1, or the ranks of mpirun
  std::string output;
  run::LinkSweep sweep;
};

constexpr auto kLinks =
    options(option<&LinksOptions::devices>("--devices",
                                           "cpu:2x1 (two devices of one core), cpu:2x4 (two of four cores), "
                                           "cuda:0,cuda:1; under mpirun the ranks",
                                           {.value = "DEVICES", .standard = "cpu:2x1"}),
            option<&LinksOptions::sweep, &run::LinkSweep::largest>(
                "--largest", "largest message; sizes double from 1 KiB on"),
            option<&LinksOptions::output>("-o,--output", "write the cluster; - for stdout", {.value = "FILE"}));

/// `cuda:0,cuda:1`: the numbers, of devices that exist. Throws pp::Error: (usage), or (device) with those that
/// exist.
std::vector<int> parse_cuda_devices(const std::string& text) {
  std::vector<int> devices;
  for (const auto part : std::views::split(text, ',')) {
    const profile::DeviceSet device =
        profile::parse_device_set({part.begin(), part.end()}, profile::machine_devices());
    if (device.kind != DeviceKind::cuda)
      throw Error(ErrorKind::usage,
                  "--devices: \"" + text + "\" mixes kinds; name CUDA devices only, or cores as cpu:2x1");
    devices.push_back(device.first);
  }
  return devices;
}

/// `cpu:2x3` is two devices of three cores. `cpu:2`, core 2 everywhere else, is read as cpu:2x1 with a warning:
/// there is no link from one core to nowhere. Throws pp::Error (usage) with the forms.
run::LinkOptions parse_cores(const std::string& text) {
  if (!text.starts_with("cpu:")) {
    throw Error(ErrorKind::usage,
                "--devices: \"" + text + "\" is not of the form cpu:2x1 (devices x cores) or cuda:0,cuda:1");
  }
  const std::vector<int> counts = cli::parse_counts(text.substr(4), 'x', "--devices");
  run::LinkOptions options;
  options.devices = counts.front();
  if (counts.size() > 1) {
    options.cores_per_device = counts[1];
  } else if (counts.front() > 1) {
    cli::warn("--devices " + text + ": a link needs two devices, so this is read as " + text + "x1, " +
              counted(counts.front(), "device") + " of one core each; elsewhere " + text + " is core " +
              std::to_string(counts.front()));
  }
  return options;
}

std::string samples_table(const Link& link, const std::vector<LinkSample>& samples) {
  cli::Table table({{"message"}, {"median us"}, {"16 % us"}, {"84 % us"}, {"fit us"}, {"samples"}});
  const auto us = [](Seconds time) { return cli::cell(1e6 * time.count()); };
  for (const LinkSample& sample : samples) {
    const Seconds fitted(transfer_time(static_cast<double>(sample.size.value), 1, link));
    table.add({to_text(sample.size), us(sample.time.median), us(sample.time.low), us(sample.time.high),
               us(fitted), std::to_string(sample.time.samples)});
  }
  return table.text();
}

/// A level, or its all-reduce: both are latency + size/bandwidth.
std::string measured_text(const std::string& what, const Link& link, double residual,
                          const std::vector<LinkSample>& samples) {
  std::string text = what + ": latency " + to_text(link.latency) + ", bandwidth " + to_text(link.bandwidth);
  if (link.beyond.value > 0) text += ", past " + to_text(link.cached) + " " + to_text(link.beyond);
  return text + ", largest error of the fit " + cli::percent(residual) + '\n' + samples_table(link, samples);
}

/// Empty where messages pass beside the devices' work, both ways at once.
std::string work_text(const Level& level) {
  if (level.message_cost <= Seconds(0) && level.overlap >= 1 && level.duplex == Duplex::full) return "";
  return "a message keeps the devices at its ends from their work for " + to_text(level.message_cost) +
         " and " + cli::percent(1 - level.overlap) + " of size/bandwidth; " +
         std::string(name_of(level.duplex)) + " duplex\n";
}

std::string cluster_text(const Cluster& cluster) {
  std::string text;
  for (const Level& level : cluster.levels) {
    const std::string devices = std::to_string(level.devices) + " devices";
    text += measured_text("level " + level.name + " of " + devices, plan::link_of(level), level.fit_residual,
                          level.samples) +
            work_text(level);
    if (!level.all_reduce) continue;
    const MeasuredAllReduce& sums = *level.all_reduce;
    text += measured_text("all-reduce of " + devices, link_of(sums), sums.fit_residual, sums.samples);
    if (sums.overlap > 0) text += cli::percent(sums.overlap) + " of a backward hides an all-reduce beside it\n";
  }
  return text;
}

void print(Cluster cluster, cli::Output& output, const cli::Shell& shell) {
  cluster.context.merge(profile::measurement_context());
  cluster.context["command"] = shell.command_line;
  for (const std::string& finding : run::link_findings(cluster)) cli::warn(finding);
  const std::string text = dump_json(to_json(cluster));
  output.write(text);
  if (!output.is_stdout()) std::cout << (shell.json ? text : cluster_text(cluster));
}

void between_cuda_devices(const LinksOptions& options, const cli::Shell& shell) {
  const std::vector<int> devices = parse_cuda_devices(options.devices);
  cli::Output output(options.output);
  Cluster cluster = [&] {
    cli::ProgressLine line(shell);
    return run::measure_cuda_links(devices, options.sweep,
                                   [&](double done) { line.update("measuring links", done, ""); });
  }();
  print(std::move(cluster), output, shell);
}

void between_cores(const LinksOptions& options, const cli::Shell& shell) {
  run::LinkOptions settings = parse_cores(options.devices.empty() ? "cpu:2x1" : options.devices);
  settings.sweep = options.sweep;
  cli::Output output(options.output);
  Cluster cluster = [&] {
    cli::ProgressLine line(shell);
    return run::measure_links(settings, [&](double done) { line.update("measuring links", done, ""); });
  }();
  print(std::move(cluster), output, shell);
}

/// Rank 0 alone writes and prints.
void between(run::Peers& peers, const LinksOptions& options, const cli::Shell& shell) {
  std::unique_ptr<cli::Output> output;
  std::vector<int> devices;
  exchange(peers, [&] {
    if (!options.devices.empty()) devices = parse_cuda_devices(options.devices);
    output = std::make_unique<cli::Output>(peers.rank() == 0 ? options.output : "");
    return Json();
  });
  const std::unique_ptr<run::LinkMedium> medium =
      devices.empty() ? run::make_host_medium(peers) : run::make_gpu_medium(peers, devices);
  std::optional<Cluster> cluster = [&] {
    cli::ProgressLine line(shell);
    return run::measure_rank_links(peers, *medium, options.sweep,
                                   [&](double done) { line.update("measuring links", done, ""); });
  }();
  run::Computation computation;
  const double overlap =
      medium->messages() != nullptr
          ? run::measure_sum_overlap(peers, options.sweep.largest, [&](Seconds time) { computation.run(time); })
          : 0;
  if (!cluster) return;
  cluster->levels.back().all_reduce->overlap = overlap;
  print(std::move(*cluster), *output, shell);
}

void between_ranks(const LinksOptions& options, const cli::Shell& shell) {
  cli::set_up_mpi();
  const std::unique_ptr<run::Peers> peers = run::join_mpi_peers(cli::launched_as());
  try {
    between(*peers, options, shell);
  } catch (const SaidByFirst&) {
  }
}

void links(const LinksOptions& options, const cli::Shell& shell) {
  if (!cli::launched_with_ranks()) {
    return options.devices.starts_with("cuda:") ? between_cuda_devices(options, shell)
                                                : between_cores(options, shell);
  }
  if (!options.devices.empty() && !options.devices.starts_with("cuda:")) {
    throw Error(
        ErrorKind::usage,
        "--devices: mpirun's ranks are the devices, one each; leave --devices out, or mpirun, or name the "
        "GPUs of a host's ranks (cuda:0,cuda:1)");
  }
  between_ranks(options, shell);
}

}  // namespace

void add_links(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "links", "measure latency and bandwidth between devices", kLinks, links,
      {"pp-profile links --devices cpu:2x1 -o cluster.json", "pp-profile links --devices cpu:2x2 --json",
       "pp-profile links --largest 64MiB -o cluster.json"});
}

}  // namespace pp::profile_tool
