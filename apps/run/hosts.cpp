#include "apps/run/hosts.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "libprofile/core/error.h"

namespace pp::run_tool {

namespace {

constexpr int kMostSlots = 1'000'000;  // of a machine

[[noreturn]] void refuse(int line, const std::string& what) {
  throw Error(ErrorKind::data,
              "line " + std::to_string(line) + ": " + what + "; write lines as: node1 slots=4");
}

int read_slots(int line, std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots)
    refuse(line, "slots = \"" + std::string(text) + "\" is not a whole number from 1 to " +
                     std::to_string(kMostSlots));
  return slots;
}

// Launchers take lists of names, and what begins with a dash for an option.
bool is_host_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  constexpr std::size_t kMostLetters = 253;
  return !name.starts_with('-') && name.size() <= kMostLetters &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

Host read_host(int line, std::istringstream& words) {
  Host host;
  words >> host.name;
  if (const std::size_t colon = host.name.find(':'); colon != std::string::npos) {
    host.slots = read_slots(line, std::string_view(host.name).substr(colon + 1));
    host.name.resize(colon);
  }
  if (host.name.empty() || host.name.find('=') != std::string::npos) refuse(line, "no host in front");
  if (!is_host_name(host.name))
    refuse(line, "\"" + host.name + "\" is no name of a host: letters, digits, dots, dashes within");
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    if (key == "slots") {
      host.slots = read_slots(line, value);
    } else if (key != "max_slots" && key != "max-slots") {
      refuse(line, "unknown word \"" + word + "\"");
    }
  }
  return host;
}

}  // namespace

int added(int a, int b) {
  return a > std::numeric_limits<int>::max() - b ? std::numeric_limits<int>::max() : a + b;
}

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    if ((words >> std::ws).eof()) continue;
    const Host host = read_host(number, words);
    const auto known = std::ranges::find(hosts, host.name, &Host::name);
    if (known == hosts.end()) {
      hosts.push_back(host);
    } else {
      known->slots = added(known->slots, host.slots);
    }
  }
  if (hosts.empty()) throw Error(ErrorKind::data, "no host in it; write a line for each as: node1 slots=4");
  return hosts;
}

std::string to_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text += (text.empty() ? "" : ", ") + host.name + " " + std::to_string(host.slots);
  return text;
}

}  // namespace pp::run_tool
