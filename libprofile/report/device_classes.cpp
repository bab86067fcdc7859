#include "libprofile/report/device_classes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace pp::profile {

namespace {

Seconds time_of(const LayerProfile& layer) {
  const LayerPoint& point = layer.points.back();
  return point.out_of_memory ? Seconds{} : point.forward.median + point.backward.median;
}

Seconds time_of(const Profile& profile) {
  Seconds sum{};
  for (const LayerProfile& layer : profile.layers) sum += time_of(layer);
  return profile.loss ? sum + time_of(*profile.loss) : sum;
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

std::vector<DeviceClass> device_classes(std::span<const Profile> profiles) {
  std::vector<DeviceClass> classes;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    const auto first_of = [&](const DeviceClass& one) -> const Profile& {
      return profiles[static_cast<std::size_t>(one.members.front())];
    };
    auto found = std::ranges::find_if(
        classes, [&](const DeviceClass& one) { return alike(first_of(one).device, profiles[i].device); });
    if (found == classes.end()) {
      const Seconds time = time_of(profiles[i]);
      const double speed = time.count() > 0 ? time_of(profiles.front()) / time : 1;
      found = classes.insert(classes.end(), {unused(file_name(profiles[i].device), classes), {}, speed});
    }
    found->members.push_back(static_cast<int>(i));
  }
  return classes;
}

std::vector<std::string> class_findings(std::span<const Profile> profiles, std::span<const DeviceClass> classes,
                                        std::span<const std::string> names) {
  constexpr double kFar = 1.25;
  std::vector<std::string> findings;
  for (const DeviceClass& one : classes) {
    const auto first = static_cast<std::size_t>(one.members.front());
    for (const int member : one.members) {
      const auto m = static_cast<std::size_t>(member);
      const double ratio = time_of(profiles[m]) / time_of(profiles[first]);
      if (!std::isfinite(ratio) || (ratio <= kFar && ratio * kFar >= 1)) continue;
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "%.2f", ratio);
      findings.push_back(
          names[m] + " takes " + text.data() + " times as long as " + names[first] +
          ", a device of the same name, whose profile counts for both: look whether another program "
          "runs there, or whether it is throttled");
    }
  }
  return findings;
}

}  // namespace pp::profile
