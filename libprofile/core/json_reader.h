// Strict reading of the JSON documents (rules: README.md beside this file). ObjectReader knows its JSON
// pointer, hands out checked values and refuses what it was not asked for: an unknown key, a wrong type, a
// missing key, a number out of range are pp::Error (data) that name file, pointer, value and limit. Only
// *_json.cpp files use it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/error.h"

namespace pp {

/// Keys keep their order in memory and in the file.
using Json = nlohmann::ordered_json;

/// Parses text that may come from anybody: duplicate keys, NaN, integers beyond 64 bits, more than 256 MiB or
/// more than 64 levels are refused. Syntax errors name line and column (in bytes), the others the JSON pointer.
Json parse_json(std::string_view text);
/// Numbers shortest round-trip, two-space indent, what fits in 120 columns on one line, newline at the end.
/// Throws (internal) on NaN or infinity.
std::string dump_json(const Json& json);
/// One line without spaces, for hashes and for stdout. Throws as dump_json().
std::string dump_json_compact(const Json& json);

/// `/layers` and `a/b` -> `/layers/a~1b` (RFC 6901).
std::string append_pointer(std::string_view pointer, std::string_view key);

/// No quantity of a document without a range of its own is larger: a petabyte, and what sums of many stay
/// numbers with.
inline constexpr std::int64_t kMostInteger = 1'000'000'000'000'000;
inline constexpr double kMostNumber = 1e30;

struct IntegerRange {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
struct NumberRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
};

class ObjectReader {
 public:
  /// `json` must outlive the reader. Throws unless it is an object.
  ObjectReader(const Json& json, std::string pointer);

  /// Also makes the key known: finish() accepts it and lists it.
  bool has(std::string_view key);
  const std::string& pointer() const { return pointer_; }

  std::string text(std::string_view key);
  bool boolean(std::string_view key);
  std::int64_t integer(std::string_view key, IntegerRange range = {});
  double number(std::string_view key, NumberRange range = {});
  std::vector<std::string> texts(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key, IntegerRange range = {});
  std::vector<double> numbers(std::string_view key, NumberRange range = {});
  template <NamedEnum E>
  E enumerator(std::string_view key) {
    const std::string name = text(key);
    if (auto value = find_enum<E>(name)) return *value;
    fail(key, unknown_name(name, all_names<E>()));
  }

  /// Reads the member object with `read`, which gets its own reader; what `read` leaves unread is refused.
  void object(std::string_view key, const std::function<void(ObjectReader&)>& read);
  /// Reads each element, an object, of the member array.
  void objects(std::string_view key, const std::function<void(ObjectReader&)>& read);
  /// Each name, value and pointer within the member object; for objects whose keys are data (attributes,
  /// context). Linear in the number of keys.
  using ReadMember =
      std::function<void(const std::string& name, const Json& value, const std::string& pointer)>;
  void members(std::string_view key, const ReadMember& read);
  /// A member of any shape, checked by the caller: an embedded document, a union of types.
  const Json& raw(std::string_view key);

  /// Throws `POINTER/key: message`.
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  [[noreturn]] void fail(const std::string& message) const;
  /// Refuses keys that were not read. Called by object(), objects() and read_document().
  void finish() const;

 private:
  /// `expected` words the remedy when the key is missing.
  const Json& at(std::string_view key, std::string_view expected);
  const Json& array(std::string_view key);

  const Json& json_;
  std::string pointer_;
  std::vector<std::string> known_;  ///< in the order they were asked for
};

/// Reads a whole document: checks "format" and "version", then calls `read`, then refuses unread keys.
/// `pointer`: where the document stands in the file, when another one embeds it.
void read_document(const Json& json, std::string_view format, int version,
                   const std::function<void(ObjectReader&)>& read, std::string pointer = {});
/// The same for a format of which older versions are read, too.
void read_document(const Json& json, std::string_view format, IntegerRange versions,
                   const std::function<void(ObjectReader&)>& read, std::string pointer = {});

}  // namespace pp
