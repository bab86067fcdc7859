#include "libprofile/report/document_findings.h"

#include <algorithm>
#include <charconv>
#include <optional>

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

/// A number in the context; nothing when it is not there or not one.
std::optional<double> context_number(const Profile& profile, const std::string& key) {
  const auto found = profile.context.find(key);
  if (found == profile.context.end()) return std::nullopt;
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
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
  const auto load = context_number(profile, "load_average");
  const auto cores = context_number(profile, "cores");
  if (load && cores && *load > *cores) {
    findings.push_back(
        "the load average was " + profile.context.at("load_average") + " on " + profile.context.at("cores") +
        " cores when this was measured: times may be too long; measure again on an idle machine");
  }
  return findings;
}

}  // namespace pp::profile
