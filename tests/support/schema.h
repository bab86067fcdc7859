// Validation by somebody else's JSON Schema library.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"

namespace pp::test {

/// What a schema has against a document; empty: nothing.
using SchemaError = std::function<std::string(const Json& json)>;
SchemaError schema_error_of(const Json& schema);
/// The same, of the schema of that document (`model`, `plan`).
std::string schema_error(std::string_view document, const Json& json);

/// The documents among the files of a folder and of those below.
class DocumentsOf {
 public:
  /// Throws std::logic_error for the system's temporary folder, where other processes write too.
  explicit DocumentsOf(std::filesystem::path folder);
  /// Those that are newer than `time`.
  DocumentsOf(std::filesystem::path folder, std::filesystem::file_time_type time);
  /// What the schemas have against those that were written since: `FILE: why; ` for each, empty: nothing. Of
  /// `.jsonl` files each line is one. What is no JSON, or disappears meanwhile, is passed over.
  std::string invalid() const;

 private:
  using Times = std::map<std::filesystem::path, std::filesystem::file_time_type>;
  Times times() const;
  std::filesystem::path folder_;
  Times before_;
};

/// Each change with a semicolon: `/steps without; /seed -1.5; `.
struct Disagreement {
  std::string too_strict;  ///< the schema refuses what is read
  std::string too_loose;   ///< the schema takes what is refused
};

/// Takes away each member, gives each object one more, and puts null, a text, -1.5, 0, true, [] and {} in the
/// place of each value of another type: where `read`, which throws pp::Error, and the schema differ. What
/// stands below `/KEY` for a key of `apart` is left as it is.
Disagreement disagreement(const SchemaError& schema, const Json& json,
                          const std::function<void(const Json&)>& read,
                          const std::vector<std::string>& apart = {});

}  // namespace pp::test
