// The schemas against the readers: what one takes the other takes, for the documents of the repository.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/schema/document_schema.h"
#include "libprofile/model/families/families.h"
#include "librun/documents.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"
#include "tests/support/schema.h"

namespace pp {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Json> documents() {
  std::map<std::string, Json> found;
  const fs::path root = pp::test::repository("");
  for (const char* folder : {"tests/data", "configs"}) {
    for (const auto& file : fs::recursive_directory_iterator(root / folder)) {
      if (file.path().extension() != ".json") continue;
      const Json json = Json::parse(read_file(file.path()), nullptr, /*allow_exceptions=*/false);
      if (json.is_object() && json.value("format", "").starts_with("pp.")) found[file.path().string()] = json;
    }
  }
  return found;
}

std::string model_error(const char* change, const std::function<void(Json&)>& apply) {
  Json json = to_json(parse_model(R"({"format": "pp.model", "version": 1, "name": "m",
    "inputs": [{"name": "x", "shape": [3, 8, 8]}], "targets": [{"name": "y", "dtype": "int64", "shape": []}],
    "layers": [{"name": "conv", "op": "conv2d", "inputs": ["x"], "attributes": {"out_channels": 4, "kernel_size": 3}},
               {"name": "flat", "op": "flatten", "inputs": ["conv"]},
               {"name": "fc", "op": "linear", "inputs": ["flat"], "attributes": {"out_features": 5}}],
    "outputs": ["fc"], "loss": {"op": "cross_entropy", "inputs": ["fc", "y"]}})"));
  apply(json);
  CAPTURE(change);
  const bool read = test::error_text([&] { return model_from_json(json); }) == "no error";
  const bool valid = test::schema_error("model", json).empty();
  CHECK(read == valid);
  return read ? "read" : "refused";
}

TEST_SUITE("libprofile/core/schema") {
  TEST_CASE("documents of the repository are valid") {
    std::map<std::string, int> counts;
    for (const auto& [file, json] : documents()) {
      const std::string name = json["format"].get<std::string>().substr(3);
      if (std::ranges::find(schema_names(), name) == schema_names().end()) continue;
      CAPTURE(file);
      CHECK(test::schema_error(name, json) == "");
      ++counts[name];
    }
    CHECK(counts["model"] >= 20);
    CHECK(counts["profile"] >= 5);
    CHECK(counts["cluster"] >= 3);
    CHECK(counts["device"] >= 3);
    CHECK(counts["trainer"] >= 5);
  }

  TEST_CASE("models of all families are valid") {
    for (const model::FamilyRow& family : model::family_table()) {
      CAPTURE(family.name);
      CHECK(test::schema_error("model", to_json(model::build_family(family.name))) == "");
    }
  }

  TEST_CASE("what the reader of models refuses for one key the schema refuses, and the other way round") {
    const auto layer = [](Json& json) -> Json& { return json["layers"][0]; };
    CHECK(model_error("nothing", [](Json&) {}) == "read");
    CHECK(model_error("unknown key", [](Json& j) { j["colour"] = 1; }) == "refused");
    CHECK(model_error("version 2", [](Json& j) { j["version"] = 2; }) == "read");
    CHECK(model_error("version 3", [](Json& j) { j["version"] = 3; }) == "refused");
    CHECK(model_error("not verified", [](Json& j) { j["verified"] = false; }) == "read");
    CHECK(model_error("verified as text", [](Json& j) { j["verified"] = "no"; }) == "refused");
    CHECK(model_error("no layers", [](Json& j) { j.erase("layers"); }) == "refused");
    CHECK(model_error("unknown operation", [&](Json& j) { layer(j)["op"] = "conv9d"; }) == "refused");
    CHECK(model_error("missing attribute", [&](Json& j) { layer(j)["attributes"].erase("kernel_size"); }) ==
          "refused");
    CHECK(model_error("attribute of zero", [&](Json& j) { layer(j)["attributes"]["kernel_size"] = 0; }) ==
          "refused");
    CHECK(model_error("unknown attribute", [&](Json& j) { layer(j)["attributes"]["speed"] = 1; }) == "refused");
    CHECK(model_error("left out default", [&](Json& j) { layer(j)["attributes"].erase("dilation"); }) ==
          "read");
    CHECK(model_error("text for a number", [&](Json& j) { layer(j)["attributes"]["stride"] = "1"; }) ==
          "refused");
    CHECK(model_error("frozen", [&](Json& j) { layer(j)["frozen"] = true; }) == "read");
    CHECK(model_error("frozen by name", [&](Json& j) { layer(j)["frozen"] = {"weight"}; }) == "read");
    CHECK(model_error("frozen by number", [&](Json& j) { layer(j)["frozen"] = 1; }) == "refused");
    CHECK(model_error("size of zero", [](Json& j) { j["inputs"][0]["shape"][0] = 0; }) == "refused");
  }

  TEST_CASE("of a folder the documents are looked at that were written meanwhile, and lines one by one") {
    const std::string start = R"({"format": "pp.metrics", "version": 1, "plan_hash": "", "seed": 0,)"
                              R"( "first_step": 0, "steps": 1, "settings": {}})";
    const std::string before = R"({"format": "pp.checkpoint", "version": 9})";
    const TestFolder folder;
    folder.write("before.json", before);
    const test::DocumentsOf documents(folder.path());
    folder.write("foreign.json", R"({"format": "test"})");
    folder.write("half.json", before.substr(0, 20));
    folder.write("valid.jsonl", start + "\n" + R"({"st)");
    CHECK(documents.invalid() == "");
    std::filesystem::create_directory(folder.path() / "ck");
    folder.write("ck/manifest.json", before);
    CHECK(documents.invalid().starts_with("ck/manifest.json: "));
    folder.write("wrong.jsonl", start + "\n" + R"({"step": 1})" + "\n");
    CHECK(documents.invalid().find("wrong.jsonl: ") != std::string::npos);
    CHECK(documents.invalid().find("before") == std::string::npos);
    // There a document of anybody would count as the test's own.
    CHECK_THROWS_AS(test::DocumentsOf{std::filesystem::temp_directory_path()}, std::logic_error);
  }

  TEST_CASE("a type may be one of several: times under a condition are numbers in older profiles") {
    const std::string schema = dump_json_compact(document_schema("profile", document_keys()));
    CHECK(schema.find(R"({"anyOf":[{"$ref":"#/definitions/time"},{"type":"number","minimum":0}]})") !=
          schema.npos);
  }

  TEST_CASE("a document within another one has its own format and version") {
    const Json report = document_schema("report", document_keys());
    CHECK(report["properties"]["format"]["const"] == "pp.report");
    CHECK(report["definitions"]["plan"]["properties"]["format"]["const"] == "pp.plan");
    CHECK(report["definitions"]["model"]["properties"]["version"]["enum"] == Json{1, 2});
  }

  TEST_CASE("every operation and loss stands in the schema of models") {
    const std::string text = document_schema("model", document_keys()).dump();
    for (const OpRow& row : op_table())
      CHECK(text.find("{\"const\":\"" + std::string(row.name) + "\"}") != text.npos);
    for (const OpRow& row : loss_table())
      CHECK(text.find("{\"const\":\"" + std::string(row.name) + "\"}") != text.npos);
  }

  TEST_CASE("another name is refused with the names that there are") {
    CHECK(test::error_text([] { return document_schema("recipe", document_keys()); }) ==
          "[usage] unknown document \"recipe\"; use one of checkpoint, cluster, device, "
          "inference, metrics, model, plan, profile, report, trainer");
  }
}

}  // namespace
}  // namespace pp
