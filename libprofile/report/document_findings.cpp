#include "libprofile/report/document_findings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

namespace pp::profile {
namespace {

std::vector<std::int64_t> sizes_out_of_memory(const Profile& profile) {
  std::vector<std::int64_t> sizes;
  for (std::size_t s = 0; s < profile.micro_batch_sizes.size(); ++s) {
    const auto failed = [s](const LayerProfile& layer) { return layer.points[s].out_of_memory; };
    if (std::ranges::any_of(profile.layers, failed)) sizes.push_back(profile.micro_batch_sizes[s]);
  }
  return sizes;
}

/// The numbers in the context under this key: several where profiles were merged, `1.50; 0.20`. None where one
/// of them is no number.
std::vector<double> context_numbers(const Profile& profile, const std::string& key) {
  const auto found = profile.context.find(key);
  if (found == profile.context.end()) return {};
  std::vector<double> numbers;
  for (std::string_view rest = found->second;;) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), numbers.emplace_back());
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (error != std::errc()) return {};
    if (rest.empty()) return numbers;
    if (!rest.starts_with("; ")) return {};
    rest.remove_prefix(2);
  }
}

/// The highest load against the fewest cores. Documents of earlier versions know the cores of the process only.
std::optional<std::string> load_finding(const Profile& profile) {
  const std::vector<double> loads = context_numbers(profile, "load_average");
  std::vector<double> cores = context_numbers(profile, "machine_cores");
  if (cores.empty()) cores = context_numbers(profile, "cores");
  if (loads.empty() || cores.empty()) return std::nullopt;
  const double load = std::ranges::max(loads), fewest = std::ranges::min(cores);
  if (load <= fewest) return std::nullopt;
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "the load average was %.2f on %.0f cores when this was measured",
                load, fewest);
  return text.data() + std::string(": times may be too long; measure again on an idle machine");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

}  // namespace

std::vector<std::string> document_findings(const Profile& profile) {
  std::vector<std::string> findings;
  if (const auto sizes = sizes_out_of_memory(profile); !sizes.empty()) {
    findings.push_back("out of memory at micro-batch sizes " + to_text(sizes) +
                       ": plans cannot use them; profile on a device with more memory for these");
  }
  if (!profile.estimated.empty()) {
    findings.push_back("assumed, not measured: " + joined(profile.estimated) +
                       "; profile the model itself for plans that can be relied on");
  }
  if (auto load = load_finding(profile)) findings.push_back(std::move(*load));
  return findings;
}

}  // namespace pp::profile
