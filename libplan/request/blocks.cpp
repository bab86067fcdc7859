#include "libplan/request/blocks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view part) { return !part.empty() && std::ranges::all_of(part, is_digit); }

/// `block3` of `block3.mlp`; empty where the first part does not end in a number, or is the whole name.
std::string_view numbered_first(std::string_view layer) {
  const std::size_t end = layer.find('.');
  return end != std::string_view::npos && end > 0 && is_digit(layer[end - 1]) ? layer.substr(0, end)
                                                                              : std::string_view();
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
  return depth > 0 ? layer : numbered_first(layer);
}

std::vector<std::vector<int>> numbered_blocks(const PlanGraph& graph) {
  std::map<std::string_view, std::vector<int>> members;
  for (int l = 0; l < graph.size(); ++l) {
    const std::string_view block = block_of(graph.layers[at(l)].name);
    if (!block.empty()) members[block].push_back(l);
  }
  std::vector<std::vector<int>> blocks;
  for (auto& [name, layers] : members) blocks.push_back(std::move(layers));
  std::ranges::sort(blocks);
  return blocks;
}

std::vector<std::vector<int>> blocks_of(const PlanGraph& graph, int depth) {
  using Block = std::pair<std::string_view, int>;  // layers in no block are told apart by the run they are in
  std::map<Block, std::vector<int>> members;
  int run = 0;
  for (int l = 0; l < graph.size(); ++l) {
    const std::string_view block = block_of(graph.layers[at(l)].name, depth);
    if (!block.empty()) ++run;
    members[{block, block.empty() ? run : 0}].push_back(l);
  }
  std::vector<std::vector<int>> blocks;
  for (auto& [name, layers] : members) {
    if (layers.size() > 1) blocks.push_back(std::move(layers));
  }
  if (run == 0) return {};  // no layer is in a block
  std::ranges::sort(blocks);
  return blocks;
}

}  // namespace pp::plan
