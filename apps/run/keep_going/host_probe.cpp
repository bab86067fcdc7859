#include "apps/run/keep_going/host_probe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"

namespace pp::run_tool {

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

}  // namespace pp::run_tool
