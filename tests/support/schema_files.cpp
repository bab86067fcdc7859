// The documents that somebody writes into a folder, for their schemas.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/schema/document_schema.h"
#include "tests/support/schema.h"

namespace pp::test {
namespace {

namespace fs = std::filesystem;

/// `pp.model` -> `model`; empty: no document that has a schema.
std::string document_name(const Json& json) {
  if (!json.is_object() || !json.contains("format") || !json["format"].is_string()) return {};
  const std::string format = json["format"].get<std::string>();
  if (!format.starts_with("pp.")) return {};
  const std::string name = format.substr(3);
  return std::ranges::count(schema_names(), name) > 0 ? name : "";
}

/// Of the document, or of each line behind one that says what they are.
std::string text_error(const std::string& text, bool lines) {
  std::istringstream all(text);
  std::string line, name, wrong;
  while (std::getline(all, line, lines ? '\n' : '\0')) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) continue;
    if (const std::string begun = document_name(json); !begun.empty()) name = begun;
    if (!name.empty()) wrong += schema_error(name, json);
  }
  return wrong;
}

}  // namespace

DocumentsOf::DocumentsOf(fs::path folder) : folder_(std::move(folder)) {
  if (fs::weakly_canonical(folder_) == fs::weakly_canonical(fs::temp_directory_path()))
    throw std::logic_error(folder_.string() + ": other processes write there too; use a folder of the test");
  before_ = times();
}

DocumentsOf::DocumentsOf(fs::path folder, fs::file_time_type time)
    : folder_(std::move(folder)), before_(times()) {
  std::erase_if(before_, [&](const auto& file) { return file.second > time; });
}

DocumentsOf::Times DocumentsOf::times() const {
  Times found;
  std::error_code gone;
  for (fs::recursive_directory_iterator at(folder_, gone), end; !gone && at != end; at.increment(gone)) {
    const std::string kind = at->path().extension().string();
    if (kind != ".json" && kind != ".jsonl") continue;
    const fs::file_time_type time = at->last_write_time(gone);
    if (!gone && at->is_regular_file(gone)) found.emplace(at->path(), time);
  }
  return found;
}

std::string DocumentsOf::invalid() const {
  std::string wrong;
  for (const auto& [path, time] : times()) {
    const auto was = before_.find(path);
    if (was != before_.end() && was->second == time) continue;
    std::string text;
    try {
      text = read_file(path);
    } catch (const Error&) {
      continue;
    }
    const std::string error = text_error(text, path.extension() == ".jsonl");
    if (!error.empty()) wrong += path.lexically_relative(folder_).string() + ": " + error;
  }
  return wrong;
}

}  // namespace pp::test
