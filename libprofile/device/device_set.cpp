#include "libprofile/device/device_set.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "libprofile/core/error.h"

namespace pp::profile {
namespace {

constexpr std::string_view kForms =
    "use cpu:K (core K), cpu:NxC (N devices of C cores each, all working) or cuda:K";

std::string quoted(std::string_view text) { return std::string(1, '"').append(text).append(1, '"'); }

[[noreturn]] void fail_form(std::string_view text, const std::string& what) {
  throw Error(ErrorKind::usage, "device " + quoted(text) + ": " + what + "; " + std::string(kForms));
}

/// Decimal digits only; nothing for anything else or a number beyond int.
std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string list_devices(std::string_view kind, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    if (i > 0) list += ", ";
    list.append(kind).append(":").append(std::to_string(i));
  }
  return list;
}

[[noreturn]] void fail_missing(std::string_view text, const MachineDevices& machine) {
  std::string exist = list_devices("cpu", static_cast<int>(machine.cores.size()));
  if (const int cuda = machine.cuda(); cuda > 0) {
    exist.append(", ").append(list_devices("cuda", cuda));
  } else {
    exist.append(" (").append(machine.why_no_cuda).append(")");
  }
  throw Error(ErrorKind::device, "device " + quoted(text) + " does not exist; this machine has " + exist);
}

DeviceSet parse_cuda(std::string_view text, std::string_view index, const MachineDevices& machine) {
  const auto device = parse_count(index);
  if (!device) fail_form(text, quoted(index) + " is not a device number");
  if (*device >= machine.cuda()) fail_missing(text, machine);
  return {.kind = DeviceKind::cuda, .first = *device, .count = 1, .cores = 0};
}

DeviceSet parse_cpu(std::string_view text, std::string_view rest, const MachineDevices& machine) {
  const std::size_t cross = rest.find('x');
  if (cross == std::string_view::npos) {
    const auto core = parse_count(rest);
    if (!core) fail_form(text, quoted(rest) + " is not a core number");
    if (*core >= static_cast<int>(machine.cores.size())) fail_missing(text, machine);
    return {.first = *core};
  }
  const auto count = parse_count(rest.substr(0, cross));
  const auto cores = parse_count(rest.substr(cross + 1));
  constexpr int kMost = 1024;
  if (!count || !cores || *count < 1 || *cores < 1 || *count > kMost || *cores > kMost) {
    fail_form(text, quoted(rest) + " is not two counts from 1 to " + std::to_string(kMost));
  }
  return {.count = *count, .cores = *cores};
}

}  // namespace

DeviceSet parse_device_set(std::string_view text, const MachineDevices& machine) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (kind == "cpu") return parse_cpu(text, rest, machine);
  if (kind == "cuda") return parse_cuda(text, rest, machine);
  fail_form(text, "unknown kind " + quoted(kind));
}

DeviceSet all_devices(DeviceSet devices, const MachineDevices& machine) {
  if (devices.kind != DeviceKind::cpu) return devices;
  devices.first = 0;
  devices.count = std::max(devices.count, static_cast<int>(machine.cores.size()) / devices.cores);
  return devices;
}

std::string to_text(const DeviceSet& devices) {
  if (devices.kind == DeviceKind::cuda) return "cuda:" + std::to_string(devices.first);
  if (devices.count == 1 && devices.cores == 1) return "cpu:" + std::to_string(devices.first);
  return "cpu:" + std::to_string(devices.count) + "x" + std::to_string(devices.cores);
}

std::vector<int> cores_of(const DeviceSet& devices, int device, const std::vector<int>& machine_cores) {
  const std::size_t have = machine_cores.size();
  const std::size_t cores = static_cast<std::size_t>(devices.cores);
  const std::size_t start = static_cast<std::size_t>(devices.first) + static_cast<std::size_t>(device) * cores;
  std::vector<int> own;
  for (std::size_t i = 0; i < std::min(cores, have); ++i) own.push_back(machine_cores[(start + i) % have]);
  return own;
}

}  // namespace pp::profile
