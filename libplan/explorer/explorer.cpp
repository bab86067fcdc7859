#include "libplan/explorer/explorer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libplan/draw/svg_labels.h"
#include "libplan/draw/svg_memory.h"
#include "libplan/explorer/plan_data.h"
#include "libplan/explorer/template.h"
#include "libplan/explorer/timeline_data.h"
#include "libprofile/core/svg_writer.h"

namespace pp::plan {
namespace {

Json kinds() {
  Json list = Json::array();
  for (const auto& [kind, letter] : EnumNames<OpKind>::table)
    list.push_back({letter, style_of(kind).name, svg_color(style_of(kind).color)});
  return list;
}

Json memory_parts() {
  Json list = Json::array();
  for (std::size_t p = 0; p < kMemoryParts.size(); ++p)
    list.push_back({kMemoryParts[p].name, svg_color(memory_color(p))});
  return list;
}

/// In a script element a text ends at `</script`, and `<!--` begins a comment.
std::string in_script(const Json& data) {
  std::string text;
  for (const char c : dump_json_compact(data)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

/// Each `@NAME@` once.
void put(std::string& page, std::string_view name, std::string_view text) {
  page.replace(page.find(name), name.size(), text);
}

}  // namespace

Json explorer_data(std::span<const ExplorerPlan> plans, std::span<const ExplorerTimeline> timelines) {
  Json data{{"kinds", kinds()}, {"parts", memory_parts()}};
  data["plans"] = Json::array();
  for (const ExplorerPlan& plan : plans) {
    Json& json = data["plans"].emplace_back(plan_data(*plan.plan, plan.name, plan.title));
    for (const ExplorerTile& tile : plan.tiles) json["tiles"].push_back({tile.name, tile.value, tile.beside});
  }
  mark_alternatives(data["plans"]);
  TimelineLimits limits;
  const std::size_t count = std::max<std::size_t>(timelines.size(), 1);
  limits.operations /= count;
  limits.memory_steps /= count;
  data["timelines"] = Json::array();
  for (const ExplorerTimeline& timeline : timelines) {
    Json& json = data["timelines"].emplace_back(timeline_data(*timeline.result, timeline.memory, limits));
    json["name"] = timeline.name;
    json["plan"] = timeline.plan;
    json["step"] = timeline.step.count();
    json["bubble"] = timeline.bubble;
  }
  return data;
}

std::string explorer_page(std::string_view title, const Json& data, std::span<const ExplorerSection> sections,
                          std::string_view style) {
  std::string markup;
  for (const ExplorerSection& section : sections) {
    markup += "<section class=\"view\" data-title=\"" + xml_escaped(section.title) + "\" hidden=\"\">" +
              section.markup + "</section>\n";
  }
  std::string page(kExplorerTemplate);
  put(page, "@DATA@", in_script(data));  // from the end, so that no text is searched for the marks behind it
  put(page, "@SECTIONS@", markup);
  put(page, "@STYLE@", style);
  put(page, "@TITLE@", xml_escaped(title));
  return page;
}

}  // namespace pp::plan
