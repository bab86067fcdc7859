#include "libplan/request/blocks.h"

#include <algorithm>
#include <map>

namespace pp::plan {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string_view block_of(std::string_view layer, int depth) {
  int parts = 0;
  for (std::size_t begin = 0; begin < layer.size();) {
    const std::size_t end = std::min(layer.find('.', begin), layer.size());
    ++parts;
    if (depth > 0 ? parts == depth : is_number(layer.substr(begin, end - begin))) return layer.substr(0, end);
    begin = end + 1;
  }
  return depth > 0 ? layer : std::string_view();
}

std::vector<std::vector<int>> blocks_of(const PlanGraph& graph, int depth) {
  std::map<std::string_view, std::vector<int>> members;
  for (int l = 0; l < graph.size(); ++l) {
    const std::string_view block = block_of(graph.layers[static_cast<std::size_t>(l)].name, depth);
    if (!block.empty()) members[block].push_back(l);
  }
  std::vector<std::vector<int>> blocks;
  for (auto& [name, layers] : members) {
    if (layers.size() > 1) blocks.push_back(std::move(layers));
  }
  std::ranges::sort(blocks);
  return blocks;
}

}  // namespace pp::plan
