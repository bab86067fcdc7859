#include "apps/run/keep_going/fleet.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <sstream>
#include <thread>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/text.h"

namespace pp::run_tool {

namespace {

template <class Wanted>
std::vector<Host> those(const std::vector<FleetHost>& hosts, const Wanted& wanted) {
  std::vector<Host> found;
  for (const FleetHost& one : hosts)
    if (wanted(one)) found.push_back(one.host);
  return found;
}

/// Nodes of the plan's machine, in order.
std::vector<std::string> nodes_of(const plan::Plan& plan) {
  std::vector<std::string> nodes;
  for (const Device& device : plan.devices)
    if (std::ranges::count(nodes, device.node) == 0) nodes.push_back(device.node);
  return nodes;
}

/// As many of the nodes as there are hosts: those of their names, then the others in order.
std::set<std::string> nodes_kept(const std::vector<std::string>& nodes, const std::vector<Host>& hosts,
                                 std::size_t most) {
  std::set<std::string> kept;
  for (const std::string& node : nodes)
    if (kept.size() < most && std::ranges::count(hosts, node, &Host::name) > 0) kept.insert(node);
  for (const std::string& node : nodes)
    if (kept.size() < most) kept.insert(node);
  return kept;
}

/// Up to these many slots.
std::size_t slots_of(const std::vector<Host>& hosts, std::size_t most) {
  int slots = 0;
  for (std::size_t i = 0; i < most; ++i) slots = added(slots, hosts[i].slots);
  return static_cast<std::size_t>(slots);
}

}  // namespace

std::optional<HostAnswer> parse_answer(std::string_view text) {
  std::optional<HostAnswer> answer;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{\"cores\":")) continue;
    try {
      const Json json = parse_json(line);
      ObjectReader reader(json, "");
      answer = HostAnswer{static_cast<int>(reader.integers("cores").size()),
                          static_cast<int>(reader.integer("cuda", {0, 1'000'000}))};
    } catch (const Error&) {  // cut short
    }
  }
  return answer;
}

HostProbe::HostProbe(Launcher launcher, const std::string& host, const std::string& program, Seconds limit)
    : process_(std::make_unique<ChildProcess>(
          host_command(launcher, host, {program, "devices", "--json", "-q"}), Stdout::kept)),
      last_(std::chrono::steady_clock::now() +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit)) {}

bool HostProbe::look() {
  if (!process_) return true;
  const std::optional<ChildEnd> end = process_->look();
  if (!end && std::chrono::steady_clock::now() < last_) return false;
  if (end && end->code == 0 && end->signal == 0) answer_ = parse_answer(process_->output());
  if (!end) process_->end(Seconds(1));
  process_.reset();
  return true;
}

std::vector<std::optional<HostAnswer>> ask_hosts(const std::vector<Host>& hosts, Launcher launcher,
                                                 const std::string& program, Seconds limit) {
  constexpr std::chrono::milliseconds kLook(20);
  std::vector<HostProbe> probes;
  for (const Host& host : hosts) probes.emplace_back(launcher, host.name, program, limit);
  while (std::ranges::count_if(probes, [](HostProbe& probe) { return !probe.look(); }) > 0)
    std::this_thread::sleep_for(kLook);
  std::vector<std::optional<HostAnswer>> answers;
  for (const HostProbe& probe : probes) answers.push_back(probe.answer());
  return answers;
}

Fleet::Fleet(const std::vector<Host>& hosts) {
  for (const Host& host : hosts) hosts_.push_back({.host = host});
}

std::vector<Host> Fleet::there() const {
  return those(hosts_, [](const FleetHost& one) { return one.there; });
}

std::vector<Host> Fleet::away() const {
  return those(hosts_, [](const FleetHost& one) { return !one.there && !one.left_out(); });
}

void Fleet::note_devices(const std::vector<std::optional<HostAnswer>>& answers) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) hosts_[i].cuda = answers[i] ? answers[i]->cuda : 0;
}

std::vector<std::string> Fleet::note(const std::vector<std::optional<HostAnswer>>& answers) {
  std::vector<std::string> lost;
  std::size_t next = 0;
  for (FleetHost& one : hosts_) {
    if (!one.there) continue;
    const std::optional<HostAnswer>& answer = answers[next++];
    const int gone = answer ? std::max(0, one.cuda - answer->cuda) : 0;
    if (answer && gone == one.gone) continue;  // as before
    std::string line = "host " + one.host.name;
    line += answer ? " has " + std::to_string(one.cuda - gone) + " of " + counted(one.cuda, "GPU")
                   : " does not answer";
    one.gone = gone;
    one.there = answer && hosts_.size() == 1 && gone < one.cuda;
    if (!one.there && ++one.losses >= kMostLosses)
      line += ", for the " + std::string(kMostLossesText) + " time: it is left out from now on";
    lost.push_back(line);
  }
  return lost;
}

bool Fleet::take_back(const std::string& name, const std::optional<HostAnswer>& answer) {
  const auto one = std::ranges::find_if(hosts_, [&](const FleetHost& host) { return host.host.name == name; });
  if (!answer || answer->cuda < one->cuda) return false;
  one->there = true;
  one->gone = 0;
  return true;
}

std::vector<int> devices_left(const plan::Plan& plan, const std::vector<Host>& hosts, int spare, int gone) {
  const std::size_t idle = std::min(static_cast<std::size_t>(spare), hosts.size() - 1);
  const std::size_t most = hosts.size() - idle;
  const std::vector<std::string> nodes = nodes_of(plan);
  const bool named = nodes.size() > 1 || !nodes.front().empty();
  const std::set<std::string> kept = named ? nodes_kept(nodes, hosts, most) : std::set<std::string>{""};
  std::vector<int> left;
  int lost = gone;
  for (const Device& device : plan.devices | std::views::reverse) {
    if (kept.count(device.node) == 0) continue;
    if (device.kind == DeviceKind::cuda && lost-- > 0) continue;
    left.insert(left.begin(), number(device.id));
  }
  if (!named && left.size() > slots_of(hosts, most)) left.resize(slots_of(hosts, most));
  return left;
}

}  // namespace pp::run_tool
