#include "libprofile/report/layer_rows.h"

#include <algorithm>
#include <functional>
#include <ranges>

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

namespace {

const std::string& name_of_row(const LayerRow& row) { return row.layer->name; }

/// The first `parts` parts of a name; all of it when it has no more.
std::string_view prefix(std::string_view name, int parts) {
  std::size_t end = 0;
  for (int p = 0; p < parts && end != std::string_view::npos; ++p) end = name.find_first_of("./", end + 1);
  return name.substr(0, end);
}

int parts_of(std::string_view name) {
  return 1 + static_cast<int>(std::ranges::count_if(name, [](char c) { return c == '.' || c == '/'; }));
}

std::string layers_text(std::size_t count) { return " (" + std::to_string(count) + " layers)"; }

LayerBlock block_of(std::span<const LayerRow> rows, const std::string& name) {
  if (rows.size() == 1) return {name_of_row(rows.front()), rows};
  return {name + layers_text(rows.size()), rows};
}

/// Neighbours with the same first `parts` parts.
std::vector<LayerBlock> by_prefix(std::span<const LayerRow> rows, int parts) {
  std::vector<LayerBlock> blocks;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    const std::string_view wanted = prefix(name_of_row(rows[begin]), parts);
    for (end = begin + 1; end < rows.size() && prefix(name_of_row(rows[end]), parts) == wanted;) ++end;
    blocks.push_back(block_of(rows.subspan(begin, end - begin), std::string(wanted)));
  }
  return blocks;
}

std::vector<LayerBlock> equal_runs(std::span<const LayerRow> rows, std::size_t most) {
  const std::size_t length = (rows.size() + most - 1) / most;
  std::vector<LayerBlock> blocks;
  for (std::size_t begin = 0; begin < rows.size(); begin += length) {
    const auto run = rows.subspan(begin, std::min(length, rows.size() - begin));
    blocks.push_back(block_of(run, name_of_row(run.front()) + " .. " + name_of_row(run.back())));
  }
  return blocks;
}

}  // namespace

bool LayerBlock::out_of_memory() const {
  return std::ranges::any_of(rows, [](const LayerRow& row) { return row.point->out_of_memory; });
}

std::vector<LayerBlock> layer_blocks(std::span<const LayerRow> rows, std::size_t most, LayerOrder order) {
  const std::size_t alone = rows.size() <= most ? rows.size() : most - 1;
  if (alone == rows.size() || order != LayerOrder::model) {
    std::vector<LayerBlock> blocks;
    for (std::size_t r = 0; r < alone; ++r) blocks.push_back(block_of(rows.subspan(r, 1), ""));
    if (alone < rows.size()) blocks.push_back(block_of(rows.subspan(alone), "all others"));
    return blocks;
  }
  int parts = 1;
  for (const LayerRow& row : rows) parts = std::max(parts, parts_of(name_of_row(row)));
  while (--parts >= 1) {
    std::vector<LayerBlock> blocks = by_prefix(rows, parts);
    if (blocks.size() > most) continue;
    const std::size_t largest = std::ranges::max(
        blocks | std::views::transform([](const LayerBlock& block) { return block.rows.size(); }));
    if (2 * largest <= rows.size()) return blocks;  // else a name like `features.17` says too little
    break;
  }
  return equal_runs(rows, most);
}

}  // namespace pp::profile
