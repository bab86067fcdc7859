// The machines of a job, from the file that mpirun reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pp::run_tool {

/// A machine, and how many processes it takes.
struct Host {
  std::string name;
  int slots = 1;
  bool operator==(const Host&) const = default;
};

/// Lines `name slots=4`, `name:4` or `name` (one slot); `#` begins a comment, max_slots is left alone, a host
/// that comes again gets more slots. Throws pp::Error (data) with the line, and where there is no host.
std::vector<Host> parse_hosts(std::string_view text);

/// Slots of two; the largest int where they are more.
int added(int a, int b);

/// `a 4, b 2`
std::string to_text(const std::vector<Host>& hosts);

}  // namespace pp::run_tool
