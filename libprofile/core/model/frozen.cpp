#include "libprofile/core/model/frozen.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "libprofile/core/model/model_names.h"

namespace pp::detail {
namespace {

using Names = std::vector<std::string>;

/// The names of a node's parameters as the node has them, in order.
Names local_names(const Layer& node, const ResolvedNode& resolved, const ResolvedLayer& layer) {
  const std::string scope = node.scope.value_or(node.name);
  const std::size_t skipped = scope.empty() ? 0 : scope.size() + 1;
  Names names;
  for (const int index : resolved.parameters)
    names.push_back(layer.parameters[static_cast<std::size_t>(index)].name.substr(skipped));
  return names;
}

std::string list_of(const Names& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

/// Per parameter of `known`: the words name it.
std::vector<bool> named(const Frozen& words, const Names& known, const std::string& pointer) {
  if (!words.none() && known.empty())
    fail_at(pointer, "there are no parameters to freeze here; remove this key");
  if (words.all) return std::vector<bool>(known.size(), true);
  std::vector<bool> frozen(known.size(), false);
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < known.size(); ++i) places.emplace(known[i], i);
  for (std::size_t k = 0; k < words.names.size(); ++k) {
    const std::string place = append_pointer(pointer, std::to_string(k));
    const auto found = places.find(words.names[k]);
    if (found == places.end())
      fail_at(place, in_quotes(words.names[k]) + " is no parameter here; use names of " + list_of(known));
    if (frozen[found->second]) fail_at(place, in_quotes(words.names[k]) + " stands here twice");
    frozen[found->second] = true;
  }
  return frozen;
}

/// `own`: per parameter of `names`, whether it is to be named.
Frozen shortest(const Names& names, const std::vector<bool>& own) {
  Frozen words;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (own[i]) words.names.push_back(names[i]);
  }
  if (!names.empty() && words.names.size() == names.size()) words = {.all = true};
  return words;
}

void freeze_nodes(FrozenWords words, const std::string& pointer, ResolvedLayer& resolved) {
  std::vector<std::size_t> owners(resolved.parameters.size(), words.nodes.size());
  for (std::size_t n = 0; n < words.nodes.size(); ++n) {
    const std::string place = append_pointer(pointer + "/nodes", std::to_string(n)) + "/frozen";
    const ResolvedNode& node = resolved.nodes[n];
    const Names names = local_names(words.nodes[n], node, resolved);
    const std::vector<bool> mine = named(words.nodes[n].frozen, names, place);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(node.parameters[i]);
      if (owners[parameter] == words.nodes.size()) owners[parameter] = n;
      if (!mine[i] || resolved.frozen[parameter]) continue;
      if (owners[parameter] != n) {
        fail_at(place, in_quotes(names[i]) + " belongs to node " +
                           in_quotes(words.nodes[owners[parameter]].name) +
                           ", which trains it; freeze it there, or nowhere");
      }
      resolved.frozen[parameter] = true;
    }
  }
  const bool all = !resolved.frozen.empty() && std::ranges::count(resolved.frozen, false) == 0;
  words.layer = {.all = all};
  for (std::size_t n = 0; n < words.nodes.size(); ++n) {
    Names names;
    std::vector<bool> own;
    const Names locals = local_names(words.nodes[n], resolved.nodes[n], resolved);
    for (std::size_t i = 0; i < locals.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(resolved.nodes[n].parameters[i]);
      if (owners[parameter] != n) continue;
      names.push_back(locals[i]);
      own.push_back(resolved.frozen[parameter]);
    }
    words.nodes[n].frozen = all ? Frozen{} : shortest(names, own);
  }
}

}  // namespace

void resolve_frozen(FrozenWords words, const std::string& pointer, ResolvedLayer& resolved) {
  Names names;
  for (const ParameterSpec& parameter : resolved.parameters) names.push_back(parameter.name);
  resolved.frozen = named(words.layer, names, pointer + "/frozen");
  words.layer = shortest(names, resolved.frozen);
  if (!words.nodes.empty()) freeze_nodes(words, pointer, resolved);
}

void follow_owner(FrozenWords words, const std::string& owner, const std::vector<bool>& owners,
                  const std::string& pointer, ResolvedLayer& resolved) {
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (!resolved.frozen[i] || owners[i]) continue;
    fail_at(pointer + "/frozen", in_quotes(resolved.parameters[i].name) + " belongs to layer " +
                                     in_quotes(owner) + ", which trains it; freeze it there, or nowhere");
  }
  resolved.frozen = owners;
  words.layer = {};
  for (Layer& node : words.nodes) node.frozen = {};
}

}  // namespace pp::detail
