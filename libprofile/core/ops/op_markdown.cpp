#include "libprofile/core/ops/op_markdown.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

/// `kernel_size, stride=kernel_size, padding=0`
std::string attribute_list(const OpRow& row) {
  std::string list;
  for (const AttributeSpec& spec : row.attributes) {
    list.append(list.empty() ? "" : ", ").append(spec.name);
    if (spec.default_value)
      list += "=" + std::visit([](const auto& value) { return Json(value).dump(); }, *spec.default_value);
    if (!spec.default_from.empty()) list.append("=").append(spec.default_from);
  }
  return list;
}

std::string notes(const OpRow& row) {
  std::string list;
  const auto note = [&](bool holds, const char* text) {
    if (holds) list.append(list.empty() ? "" : ", ").append(text);
  };
  note(row.batch_statistics, "statistics");
  note(row.draws, "draws");
  note(row.weight_gradient_with_input, "W with I");
  note(row.index_limit != nullptr, "index limit");
  note(!row.runnable, "not run");
  return list;
}

/// `| a | | c |`
std::string line(std::initializer_list<std::string> cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += (cell.empty() ? "" : " " + cell) + " |";
  return text + "\n";
}

}  // namespace

std::string operations_markdown() {
  std::string text = line({"op", "attributes and defaults", "shapes", "FLOPs per sample", "notes"}) +
                     "|---|---|---|---|---|\n";
  const auto name = [](const OpRow& row) { return "`" + std::string(row.name) + "`"; };
  for (const OpRow& row : op_table())
    text += line({name(row), attribute_list(row), std::string(row.shapes), std::string(row.flops), notes(row)});
  text += "\n" + line({"loss", "attributes and defaults", "prediction, target", "value", "FLOPs per sample"}) +
          "|---|---|---|---|---|\n";
  for (const OpRow& row : loss_table()) {
    text += line({name(row), attribute_list(row), std::string(row.shapes), std::string(row.summary),
                  std::string(row.flops)});
  }
  return text;
}

}  // namespace pp
