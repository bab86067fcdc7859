#include "libprofile/report/layer_rows.h"

#include <algorithm>
#include <functional>

namespace pp::profile {

std::size_t size_position(const Profile& profile, std::optional<std::int64_t> wanted) {
  const auto& sizes = profile.micro_batch_sizes;
  if (!wanted) return sizes.size() - 1;
  const auto found = std::ranges::find(sizes, *wanted);
  if (found == sizes.end()) {
    throw Error(ErrorKind::usage, "--micro-batch-size: " + std::to_string(*wanted) +
                                      " was not measured; use one of " + to_text(sizes));
  }
  return static_cast<std::size_t>(found - sizes.begin());
}

std::vector<LayerRow> layer_rows(const Profile& profile, std::size_t position, LayerOrder order) {
  std::vector<LayerRow> rows;
  for (const LayerProfile& layer : profile.layers) rows.push_back({&layer, &layer.points[position]});
  if (profile.loss) rows.push_back({&*profile.loss, &profile.loss->points[position]});
  if (order == LayerOrder::time) std::ranges::stable_sort(rows, std::greater<>(), &LayerRow::time);
  if (order == LayerOrder::memory) std::ranges::stable_sort(rows, std::greater<>(), &LayerRow::memory);
  return rows;
}

Seconds total_time(const std::vector<LayerRow>& rows) {
  Seconds total{};
  for (const LayerRow& row : rows) total += row.time();
  return total;
}

Bytes total_memory(const std::vector<LayerRow>& rows) {
  Bytes total;
  for (const LayerRow& row : rows) total += row.memory();
  return total;
}

}  // namespace pp::profile
