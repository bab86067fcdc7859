#include "libplan/peers/placement.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

bool is_free(const std::vector<char>& occupied, int device) { return occupied[at(device)] == 0; }

bool in_use(const DappleMachine& machine, const std::vector<char>& occupied, int server) {
  const int first = server * machine.per_server;
  for (int device = first; device < first + machine.per_server; ++device) {
    if (!is_free(occupied, device)) return true;
  }
  return false;
}

/// Server by server, either the empty ones or those in use.
std::vector<int> server_by_server(const DappleMachine& machine, const std::vector<char>& occupied, int count,
                                  bool used) {
  std::vector<int> devices;
  for (int device = 0; device < machine.devices() && std::ssize(devices) < count; ++device) {
    if (in_use(machine, occupied, machine.server(device)) == used && is_free(occupied, device))
      devices.push_back(device);
  }
  return devices;
}

std::vector<int> scattered(const DappleMachine& machine, std::vector<char> occupied, int count) {
  std::vector<int> devices;
  for (int round = 0; round < machine.per_server; ++round) {
    for (int server = 0; server < machine.servers && std::ssize(devices) < count; ++server) {
      const int first = server * machine.per_server;
      for (int device = first; device < first + machine.per_server; ++device) {
        if (!is_free(occupied, device)) continue;
        occupied[at(device)] = 1;
        devices.push_back(device);
        break;
      }
    }
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace

std::vector<std::vector<int>> placements(const DappleMachine& machine, const std::vector<char>& occupied,
                                         int count) {
  std::vector<std::vector<int>> distinct;
  for (std::vector<int>& devices :
       std::vector{server_by_server(machine, occupied, count, false),
                   server_by_server(machine, occupied, count, true), scattered(machine, occupied, count)}) {
    const bool known = std::find(distinct.begin(), distinct.end(), devices) != distinct.end();
    if (std::ssize(devices) == count && !known) distinct.push_back(std::move(devices));
  }
  return distinct;
}

}  // namespace pp::plan
