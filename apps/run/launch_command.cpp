#include "apps/run/launch_command.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"
#include "librun/transport/placement.h"

namespace pp::run_tool {

namespace {

std::string number_text(std::int64_t value) { return std::to_string(value); }

const Device& device_of(const plan::Plan& plan, const plan::Worker& worker) {
  return plan.devices[index(worker.device)];
}

/// The nodes in the order of their first rank, with their ranks.
using Nodes = std::vector<std::pair<std::string, std::vector<int>>>;

/// Throws pp::Error (usage) where a rank would have workers of two nodes.
Nodes nodes_of(const plan::Plan& plan, int ranks) {
  const run::Placement placement = run::place_workers(plan, 0, ranks);
  std::vector<std::optional<std::string>> node(static_cast<std::size_t>(ranks));
  for (const plan::Worker& worker : plan.workers) {
    const int rank = placement.of(worker.id);
    const std::string& here = device_of(plan, worker).node;
    auto& known = node[static_cast<std::size_t>(rank)];
    if (known && *known != here)
      throw Error(ErrorKind::usage, "on " + counted(ranks, "rank") + " rank " + number_text(rank) +
                                        " would have workers of the nodes " + *known + " and " + here +
                                        "; give the hosts " + number_text(std::ssize(plan.workers)) +
                                        " slots together, one for each worker");
    known = here;
  }
  Nodes nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& name = *node[static_cast<std::size_t>(rank)];
    auto known = std::ranges::find(nodes, name, &Nodes::value_type::first);
    if (known == nodes.end()) known = nodes.insert(nodes.end(), {name, {}});
    known->second.push_back(rank);
  }
  return nodes;
}

HostOfRank fill_slots(int ranks, const std::vector<Host>& hosts) {
  HostOfRank placed;
  for (std::size_t h = 0; h < hosts.size() && std::ssize(placed) < ranks; ++h) {
    const int room = ranks - static_cast<int>(placed.size());
    placed.insert(placed.end(), static_cast<std::size_t>(std::min(room, hosts[h].slots)), static_cast<int>(h));
  }
  return placed;
}

/// A host for every node: first those of their names, then the others in order.
std::vector<int> match_nodes(const Nodes& nodes, const std::vector<Host>& hosts) {
  std::vector<int> host_of(nodes.size(), -1);
  std::vector<bool> taken(hosts.size());
  const auto take = [&](std::size_t node, auto&& fits) {
    for (std::size_t h = 0; h < hosts.size() && host_of[node] < 0; ++h) {
      if (taken[h] || hosts[h].slots < std::ssize(nodes[node].second) || !fits(hosts[h])) continue;
      host_of[node] = static_cast<int>(h);
      taken[h] = true;
    }
  };
  for (std::size_t n = 0; n < nodes.size(); ++n)
    take(n, [&](const Host& host) { return host.name == nodes[n].first; });
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    take(n, [](const Host&) { return true; });
    if (host_of[n] >= 0) continue;
    throw Error(ErrorKind::usage, "the plan has " + counted(std::ssize(nodes), "node") + ", of which " +
                                      nodes[n].first + " needs a host of its own with " +
                                      counted(std::ssize(nodes[n].second), "slot") + "; the " +
                                      counted(std::ssize(hosts), "host") + " of the file (" + to_text(hosts) +
                                      ") leave none; add one, or plan for the machines that you have");
  }
  return host_of;
}

HostOfRank place_so_many(const plan::Plan& plan, const std::vector<Host>& hosts, int ranks) {
  const Nodes nodes = nodes_of(plan, ranks);
  if (nodes.size() == 1 && nodes.front().first.empty()) return fill_slots(ranks, hosts);
  const std::vector<int> host_of = match_nodes(nodes, hosts);
  HostOfRank placed(static_cast<std::size_t>(ranks));
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (const int rank : nodes[n].second) placed[static_cast<std::size_t>(rank)] = host_of[n];
  }
  return placed;
}

/// More than an int holds are as good as that many.
int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots = added(slots, host.slots);
  return slots;
}

/// What the busiest rank needs: a core for each of its workers, or those that their devices name; GPUs.
struct Needs {
  int cores = 1, gpus = 0;
};

Needs needs_of(const plan::Plan& plan, int ranks) {
  const run::Placement placement = run::place_workers(plan, 0, ranks);
  std::vector<Needs> each(static_cast<std::size_t>(ranks), {0, 0});
  for (const plan::Worker& worker : plan.workers) {
    const Device& device = device_of(plan, worker);
    Needs& needs = each[static_cast<std::size_t>(placement.of(worker.id))];
    needs.cores += std::max(1, static_cast<int>(device.cores.size()));
    needs.gpus += device.kind == DeviceKind::cuda ? 1 : 0;
  }
  Needs most;
  for (const Needs& needs : each) most = {std::max(most.cores, needs.cores), std::max(most.gpus, needs.gpus)};
  return most;
}

/// `a,a,b,b`: the host of each rank.
std::string host_of_each(const HostOfRank& placed, const std::vector<Host>& hosts) {
  std::string list;
  for (const int host : placed) list += (list.empty() ? "" : ",") + hosts[static_cast<std::size_t>(host)].name;
  return list;
}

/// `a:2,b:2`: the hosts in the order of their ranks.
std::string host_runs(const HostOfRank& placed, const std::vector<Host>& hosts) {
  std::vector<std::pair<int, int>> runs;  // host, ranks
  for (const int host : placed) {
    if (!runs.empty() && runs.back().first == host) {
      ++runs.back().second;
      continue;
    }
    const std::string& name = hosts[static_cast<std::size_t>(host)].name;
    if (std::ranges::find(runs, host, &std::pair<int, int>::first) != runs.end())
      throw Error(ErrorKind::usage,
                  "the plan's ranks on " + name +
                      " do not follow each other, which MPICH cannot start; number the ranks of "
                      "the plan node by node, or use another launcher");
    runs.emplace_back(host, 1);
  }
  std::string list;
  for (const auto& [host, ranks] : runs) {
    const std::string& name = hosts[static_cast<std::size_t>(host)].name;
    list += (list.empty() ? "" : ",") + name + ":" + number_text(ranks);
  }
  return list;
}

std::vector<std::string> srun_command(const HostOfRank& placed, const std::vector<Host>& hosts,
                                      const Needs& needs, const LaunchOptions& options) {
  std::vector<int> used = placed;
  std::ranges::sort(used);
  const auto twice = std::ranges::unique(used);
  used.erase(twice.begin(), twice.end());
  // Workers bind themselves to their cores and choose the GPUs of their node by number.
  std::vector<std::string> command{"srun",
                                   "--mpi=" + options.slurm_interface,
                                   "--ntasks=" + number_text(std::ssize(placed)),
                                   "--nodes=" + number_text(std::ssize(used)),
                                   "--distribution=arbitrary",
                                   "--nodelist=" + host_of_each(placed, hosts),
                                   "--cpus-per-task=" + number_text(needs.cores),
                                   "--cpu-bind=none"};
  if (needs.gpus > 0) {
    command.push_back("--gpus-per-task=" + number_text(needs.gpus));
    command.emplace_back("--gpu-bind=none");
  }
  return command;
}

}  // namespace

HostOfRank place_ranks(const plan::Plan& plan, const std::vector<Host>& hosts) {
  const int slots = slots_of(hosts);
  if (const int named = run::ranks_named(plan); named > 1) {
    if (named > slots)
      throw Error(ErrorKind::usage, "the plan names " + counted(named, "rank") + " and the " +
                                        counted(std::ssize(hosts), "host") + " of the file have " +
                                        counted(slots, "slot") + " (" + to_text(hosts) +
                                        "); add hosts or slots, or plan for fewer");
    return place_so_many(plan, hosts, named);
  }
  const int most = std::min(slots, static_cast<int>(plan.workers.size()));
  std::optional<Error> first;
  for (int ranks = most; ranks > 0; --ranks) {
    try {
      return place_so_many(plan, hosts, ranks);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw *first;
}

std::vector<std::string> rank_command(const LaunchOptions& options) {
  std::vector<std::string> command{options.program, options.warm ? "check" : "train"};
  if (options.warm) command.emplace_back("--warm");
  command.push_back(options.plan);
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

std::vector<std::string> launch_command(const plan::Plan& plan, const std::vector<Host>& hosts,
                                        Launcher launcher, const LaunchOptions& options) {
  const HostOfRank placed = place_ranks(plan, hosts);
  const std::string ranks = number_text(std::ssize(placed));
  std::vector<std::string> command;
  switch (launcher) {
    case Launcher::mpirun:  // which would otherwise begin with this host
      command = {"mpirun",   "-n",  ranks,       "--host", host_of_each(placed, hosts),
                 "--map-by", "seq", "--bind-to", "none"};
      break;
    case Launcher::mpich:
      command = {"mpiexec.hydra", "-n", ranks, "-hosts", host_runs(placed, hosts), "-bind-to", "none"};
      break;
    case Launcher::srun:
      command = srun_command(placed, hosts, needs_of(plan, static_cast<int>(placed.size())), options);
      break;
  }
  const std::vector<std::string> rank = rank_command(options);
  command.insert(command.end(), rank.begin(), rank.end());
  return command;
}

std::vector<std::string> host_command(Launcher launcher, const std::string& host,
                                      const std::vector<std::string>& command) {
  std::vector<std::string> words;
  switch (launcher) {
    case Launcher::mpirun: words = {"mpirun", "-n", "1", "--host", host, "--bind-to", "none"}; break;
    case Launcher::mpich: words = {"mpiexec.hydra", "-n", "1", "-hosts", host, "-bind-to", "none"}; break;
    case Launcher::srun:  // beside a step that runs
      words = {"srun", "--mpi=none", "--overlap", "--ntasks=1", "--nodes=1", "--nodelist=" + host};
      break;
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace pp::run_tool
