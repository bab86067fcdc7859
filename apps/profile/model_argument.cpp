#include "apps/profile/model_argument.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "apps/cli/arguments.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "libprofile/model/segment_plan.h"

namespace pp::profile_tool {
namespace {

constexpr auto kConfig = "config.json";

struct Document {
  std::string path, arguments;
};

/// The document of a file's name or of a folder's; none: it is neither.
std::optional<std::string> document_at(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) return (std::filesystem::path(name) / kConfig).string();
  if (name == "-" || name.ends_with(".json") || std::filesystem::exists(name, ignored)) return name;
  return std::nullopt;
}

/// `config.json:layers=4`. Families have arguments too: only names that end in .json and folders with a
/// config.json are taken for documents.
std::optional<Document> document_with_arguments(const std::string& model) {
  const std::size_t colon = model.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::string name = model.substr(0, colon), arguments = model.substr(colon + 1);
  if (name.ends_with(".json")) return Document{name, arguments};
  std::error_code ignored;
  const std::filesystem::path config = std::filesystem::path(name) / kConfig;
  if (std::filesystem::exists(config, ignored)) return Document{config.string(), arguments};
  return std::nullopt;
}

ModelGraph parse(std::string_view text, const std::string& arguments) {
  const Json json = parse_json(text);
  if (model::is_hugging_face_config(json)) {
    ModelGraph model = model::build_hugging_face(json, arguments);
    const auto further = json.find(model::kPredictionsKey);
    if (further != json.end() && *further > 0 && arguments.find("mtp=") == arguments.npos)
      cli::inform("multi-token prediction (" + std::string(model::kPredictionsKey) + " " + further->dump() +
                  ") is left out; config.json:mtp=1 has a block of it");
    return model;
  }
  if (arguments.empty()) {
    const ResolvedModel model = resolve(model_from_json(json));
    model::check_bindable(model);
    return model.graph;
  }
  throw Error(ErrorKind::usage,
              "takes no arguments: it is no config.json of Hugging Face; leave out \":" + arguments + "\"");
}

std::optional<Document> document_of(const std::string& model) {
  if (const auto path = document_at(model)) return Document{*path, {}};
  return document_with_arguments(model);
}

}  // namespace

std::optional<DType> declared_type(const std::string& model) {
  const std::optional<Document> document = document_of(model);
  if (!document || document->path == "-") return std::nullopt;
  return cli::load(document->path, [](std::string_view text) -> std::optional<DType> {
    const Json json = parse_json(text);
    if (!model::is_hugging_face_config(json)) return std::nullopt;
    for (const char* key : {"torch_dtype", "dtype"}) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_string()) continue;
      const auto name = found->get<std::string>();
      const std::optional<DType> type = name == "float16" ? DType::bfloat16 : find_enum<DType>(name);
      return type && is_floating(*type) ? type : std::nullopt;
    }
    return std::nullopt;
  });
}

ModelGraph load_model(const std::string& model) {
  const std::optional<Document> document = document_of(model);
  if (!document) return model::build_family(model);
  return cli::load(document->path, [&](std::string_view text) { return parse(text, document->arguments); });
}

TrainerSpec load_trainer(const std::string& typed, DeviceKind device) {
  if (typed.empty() && device == DeviceKind::cpu) return {};
  const std::string trainer = typed.empty() ? "pp-run" : typed;
  return cli::load(cli::shipped_document(trainer, "trainers", "--trainer"), parse_trainer);
}

}  // namespace pp::profile_tool
