// A row for each option that a plan's context tells.
#include "libplan/request/request_context.h"

#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

const PlanRequest kFreeRequest;

/// A name, or JSON: `true`, `16`, `0.5`, `[1,2]`.
template <class T>
std::string value_text(const T& value) {
  if constexpr (NamedEnum<T>) {
    return std::string(name_of(value));
  } else if constexpr (requires { value.value; }) {
    return value_text(value.value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else {
    return dump_json_compact(Json(value));
  }
}

[[noreturn]] void refuse_value(const std::string& text) {
  throw Error(ErrorKind::data, "\"" + text + "\" is no value of this option; leave the entry out");
}

template <class T>
void read_value(T& value, const std::string& text) {
  if constexpr (NamedEnum<T>) {
    value = parse_enum<T>(text, "its value", ErrorKind::data);
  } else if constexpr (requires { value.value; }) {
    read_value(value.value, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else {
    const Json json = Json::parse(text, nullptr, false);
    const bool one = json.is_number() || json.is_boolean();
    if (one ? !std::is_arithmetic_v<T> : !json.is_array() || std::is_arithmetic_v<T>) refuse_value(text);
    try {
      value = json.get<T>();
    } catch (const Json::exception&) {
      refuse_value(text);
    }
    if (Json(value) != json) refuse_value(text);  // 1.5, of a count
  }
}

/// What stands in an optional member, or the member.
template <class T>
auto& held_by(T& member) {
  if constexpr (requires { member.has_value(); }) {
    return *member;
  } else {
    return member;
  }
}

std::string numbers_text(const std::vector<int>& numbers, char separator) {
  std::string text;
  for (const int n : numbers)
    text.append(text.empty() ? "" : std::string(1, separator)).append(std::to_string(n));
  return text;
}

struct ContextEntry {
  std::string_view key;
  std::string (*text)(const PlanRequest& request);              ///< empty: none
  void (*read)(PlanRequest& request, const std::string& text);  ///< nullptr: for one number of devices only
};

template <auto kMember>
constexpr ContextEntry entry_of(std::string_view key) {
  return {key,
          [](const PlanRequest& request) {
            const auto& member = request.*kMember;
            return member == kFreeRequest.*kMember ? std::string() : value_text(held_by(member));
          },
          [](PlanRequest& request, const std::string& text) {
            auto& member = request.*kMember;
            if constexpr (requires { member.emplace(); }) member.emplace();
            read_value(held_by(member), text);
          }};
}

constexpr ContextEntry unread(ContextEntry entry) {
  entry.read = nullptr;
  return entry;
}

std::string cut_at_text(const PlanRequest& request) {
  if (!request.cut_at) return {};
  return request.cut_at->depth == 0 ? "block" : std::to_string(request.cut_at->depth);
}
void read_cut_at(PlanRequest& request, const std::string& text) {
  request.cut_at.emplace();
  if (text != "block") read_value(request.cut_at->depth, text);
}
std::string window_text(const PlanRequest& request) {
  if (!request.windows.empty()) return numbers_text(request.windows, ',');
  return request.window ? value_text(*request.window) : std::string();
}
/// A list is of stages: one that was given, or what the search found.
void read_window(PlanRequest& request, const std::string& text) {
  request.window = find_enum<WindowRule>(text);
}

constexpr std::array kEntries{
    entry_of<&PlanRequest::schedule>("schedule"),
    entry_of<&PlanRequest::allow_async>("allow_async"),
    entry_of<&PlanRequest::extrapolate>("extrapolate"),
    entry_of<&PlanRequest::linear_batch>("linear_batch"),
    entry_of<&PlanRequest::force_units>("force_units"),
    entry_of<&PlanRequest::trainer>("for"),
    entry_of<&PlanRequest::even_replicas>("even_replicas"),
    entry_of<&PlanRequest::even_nodes>("even_nodes"),
    entry_of<&PlanRequest::recompute_extent>("recompute_extent"),
    unread(entry_of<&PlanRequest::micro_batches>("micro_batches")),  // the plan's own
    entry_of<&PlanRequest::micro_batch_size>("micro_batch_size"),
    entry_of<&PlanRequest::chunks_per_worker>("chunks"),
    unread(entry_of<&PlanRequest::stages>("stages")),
    entry_of<&PlanRequest::max_stages>("max_stages"),
    entry_of<&PlanRequest::max_replicas>("max_replicas"),
    entry_of<&PlanRequest::memory_limit>("memory_limit_bytes"),
    entry_of<&PlanRequest::reserve>("reserve"),
    entry_of<&PlanRequest::context_bytes>("context_bytes"),
    entry_of<&PlanRequest::optimizer_state_ratio>("optimizer_state_ratio"),
    entry_of<&PlanRequest::placement>("placement"),
    entry_of<&PlanRequest::layer_order>("layer_order"),
    ContextEntry{"cut_at", cut_at_text, read_cut_at},
    ContextEntry{"cuts", [](const PlanRequest& request) { return numbers_text(request.cuts, ','); }, nullptr},
    ContextEntry{"replicas", [](const PlanRequest& request) { return numbers_text(request.replicas, '-'); },
                 nullptr},
    entry_of<&PlanRequest::recompute>("recompute"),
    entry_of<&PlanRequest::shard>("shard"),
    entry_of<&PlanRequest::all_reduce_overlap>("all_reduce_overlap"),
    entry_of<&PlanRequest::tied>("tied"),
    entry_of<&PlanRequest::swap_bandwidth>("swap_bandwidth"),
    entry_of<&PlanRequest::swap_overlap>("swap_overlap"),
    ContextEntry{"window", window_text, read_window}};

}  // namespace

void add_options(Context& context, const PlanRequest& request) {
  for (const char* const key : {"schedule", "micro_batches", "window"}) context[key] = "auto";
  for (const ContextEntry& entry : kEntries)
    if (std::string text = entry.text(request); !text.empty())
      context[std::string(entry.key)] = std::move(text);
}

void read_options(PlanRequest& request, const Context& context) {
  for (const ContextEntry& entry : kEntries) {
    const auto found = context.find(std::string(entry.key));
    if (found == context.end() || entry.read == nullptr) continue;
    with_context("context, " + std::string(entry.key), [&] { entry.read(request, found->second); });
  }
}

}  // namespace pp::plan
