#include "libprofile/report/device_classes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <optional>

namespace pp::profile {

namespace {

/// Of F and B of all layers, and the loss, at the size of position `s`; nothing where one was out of memory.
std::optional<Seconds> time_of(const Profile& profile, std::size_t s) {
  Seconds sum{};
  const auto add = [&](const LayerProfile& layer) {
    const LayerPoint& point = layer.points[s];
    sum += point.forward.median + point.backward.median;
    return !point.out_of_memory;
  };
  const bool fits = std::ranges::all_of(profile.layers, add) && (!profile.loss || add(*profile.loss));
  return fits ? std::optional(sum) : std::nullopt;
}

/// The time of `a` over that of `b` at the largest micro-batch size that has fitted into both.
std::optional<double> relative_time(const Profile& a, const Profile& b) {
  for (std::size_t s = a.micro_batch_sizes.size(); s-- > 0;) {
    const auto there = std::ranges::find(b.micro_batch_sizes, a.micro_batch_sizes[s]);
    if (there == b.micro_batch_sizes.end()) continue;
    const auto first = time_of(a, s);
    const auto second = time_of(b, static_cast<std::size_t>(there - b.micro_batch_sizes.begin()));
    if (first && second && first->count() > 0 && second->count() > 0) return *first / *second;
  }
  return std::nullopt;
}

const Profile& first_of(const DeviceClass& one, std::span<const Profile> profiles) {
  return profiles[static_cast<std::size_t>(one.members.front())];
}

bool alike(const ProfiledDevice& a, const ProfiledDevice& b) {
  return a.kind == b.kind && a.name == b.name && a.cores_per_device == b.cores_per_device;
}

std::string file_name(const ProfiledDevice& device) {
  std::string name;
  for (const unsigned char c : device.name) {
    if (std::isalnum(c) != 0) {
      name += static_cast<char>(std::tolower(c));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? std::string(name_of(device.kind)) : name;
}

std::string unused(const std::string& name, const std::vector<DeviceClass>& classes) {
  const auto known = [&](const std::string& text) {
    return std::ranges::find(classes, text, &DeviceClass::name) != classes.end();
  };
  if (!known(name)) return name;
  int number = 2;
  while (known(name + "-" + std::to_string(number))) ++number;
  return name + "-" + std::to_string(number);
}

}  // namespace

std::vector<DeviceClass> device_classes(std::span<const ProfiledDevice> devices) {
  std::vector<DeviceClass> classes;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto found = std::ranges::find_if(classes, [&](const DeviceClass& one) {
      return alike(devices[static_cast<std::size_t>(one.members.front())], devices[i]);
    });
    if (found == classes.end()) found = classes.insert(found, {unused(file_name(devices[i]), classes), {}, 1});
    found->members.push_back(static_cast<int>(i));
  }
  return classes;
}

void set_speeds(std::span<DeviceClass> classes, std::span<const Profile> profiles) {
  for (DeviceClass& one : classes)
    one.speed = relative_time(profiles.front(), first_of(one, profiles)).value_or(1);
}

std::vector<std::string> class_findings(std::span<const Profile> profiles, std::span<const DeviceClass> classes,
                                        std::span<const std::string> names) {
  constexpr double kFar = 1.25;
  std::vector<std::string> findings;
  for (const DeviceClass& one : classes) {
    const auto first = static_cast<std::size_t>(one.members.front());
    if (!relative_time(profiles.front(), profiles[first])) {
      findings.push_back("no micro-batch size has fitted into both " + names.front() + " and " + names[first] +
                         ": class " + one.name +
                         " is taken as fast as the first; add smaller ones to --micro-batch-sizes");
    }
    for (const int member : one.members) {
      const auto m = static_cast<std::size_t>(member);
      const std::optional<double> ratio = relative_time(profiles[m], profiles[first]);
      if (!ratio || (*ratio <= kFar && *ratio * kFar >= 1)) continue;
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "%.2f", *ratio);
      findings.push_back(
          names[m] + " takes " + text.data() + " times as long as " + names[first] +
          ", a device of the same name, whose profile counts for both: look whether another program "
          "runs there, or whether it is throttled");
    }
  }
  return findings;
}

}  // namespace pp::profile
