#include "libprofile/core/json_reader.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/fields.h"
#include "libprofile/core/text.h"

namespace pp {
namespace {

/// What stands in the file, short enough for a message.
std::string found(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::null: return "null";
    default: break;
  }
  std::string text = dump_json_compact(json);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = std::string(beginning(text, kLongest)) + "...";
  return text;
}

std::string number_text(double value) { return Json(value).dump(); }

bool is_open(IntegerRange range) { return range.max == IntegerRange{}.max; }
bool is_open(NumberRange range) { return range.max == NumberRange{}.max; }
std::int64_t most(IntegerRange range) { return is_open(range) ? kMostInteger : range.max; }
double most(NumberRange range) { return is_open(range) ? kMostNumber : range.max; }

/// Those limits are named only to who exceeds them.
std::string describe_limits(IntegerRange range, bool exceeded) {
  const std::string from = "an integer from " + std::to_string(range.min);
  return is_open(range) && !exceeded ? from + " upwards" : from + " to " + std::to_string(most(range));
}
std::string describe_limits(NumberRange range, bool exceeded) {
  const bool positive = range.min == std::numeric_limits<double>::min();
  const std::string from = positive ? "a number above 0" : "a number from " + number_text(range.min);
  if (is_open(range) && !exceeded) return positive ? from : from + " upwards";
  return from + (positive ? ", to " : " to ") + number_text(most(range));
}

template <class Range>
bool exceeds(const Json& json, Range range) {
  return json.is_number() && json.get<double>() > static_cast<double>(most(range));
}

}  // namespace

namespace detail {

std::string describe(IntegerRange range) { return describe_limits(range, false); }
std::string describe(NumberRange range) { return describe_limits(range, false); }

void fail_at(const std::string& pointer, const std::string& message) {
  throw Error(ErrorKind::data, pointer.empty() ? message : pointer + ": " + message);
}

std::int64_t integer_at(const Json& json, const std::string& pointer, IntegerRange range) {
  // An unsigned value is above 2^63 - 1 exactly when its signed reading is negative.
  const bool fits = json.is_number_integer() && !(json.is_number_unsigned() && json.get<std::int64_t>() < 0);
  if (fits) {
    const auto value = json.get<std::int64_t>();
    if (value >= range.min && value <= most(range)) return value;
  }
  fail_at(pointer, "must be " + describe_limits(range, exceeds(json, range)) + ", not " + found(json));
}

double number_at(const Json& json, const std::string& pointer, NumberRange range) {
  if (json.is_number()) {
    const auto value = json.get<double>();
    if (value >= range.min && value <= most(range)) return value;
  }
  fail_at(pointer, "must be " + describe_limits(range, exceeds(json, range)) + ", not " + found(json));
}

std::string text_at(const Json& json, const std::string& pointer) {
  if (!json.is_string()) fail_at(pointer, "must be a string, not " + found(json));
  return json.get<std::string>();
}

bool boolean_at(const Json& json, const std::string& pointer) {
  if (!json.is_boolean()) fail_at(pointer, "must be true or false, not " + found(json));
  return json.get<bool>();
}

const Json& array_at(const Json& json, const std::string& pointer) {
  if (!json.is_array()) fail_at(pointer, "must be an array, not " + found(json));
  return json;
}

const Json& object_at(const Json& json, const std::string& pointer) {
  if (!json.is_object()) fail_at(pointer, "must be an object, not " + found(json));
  return json;
}

}  // namespace detail

using namespace detail;

ObjectReader::ObjectReader(const Json& json, std::string pointer)
    : json_(object_at(json, pointer)), pointer_(std::move(pointer)) {}

bool ObjectReader::has(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  return json_.contains(key);
}

const Json& ObjectReader::at(std::string_view key, std::string_view expected) {
  if (!has(key)) fail(key, "missing; add this key, " + std::string(expected));
  return *json_.find(key);
}

std::string ObjectReader::text(std::string_view key) {
  return text_at(at(key, "a string"), append_pointer(pointer_, key));
}

bool ObjectReader::boolean(std::string_view key) {
  return boolean_at(at(key, "true or false"), append_pointer(pointer_, key));
}

std::int64_t ObjectReader::integer(std::string_view key, IntegerRange range) {
  return integer_at(at(key, describe(range)), append_pointer(pointer_, key), range);
}

double ObjectReader::number(std::string_view key, NumberRange range) {
  return number_at(at(key, describe(range)), append_pointer(pointer_, key), range);
}

const Json& ObjectReader::array(std::string_view key) {
  return array_at(at(key, "an array"), append_pointer(pointer_, key));
}

std::vector<std::string> ObjectReader::texts(std::string_view key) {
  std::vector<std::string> values;
  const std::string pointer = append_pointer(pointer_, key);
  for (const Json& element : array(key)) {
    values.push_back(text_at(element, append_pointer(pointer, std::to_string(values.size()))));
  }
  return values;
}

std::vector<std::int64_t> ObjectReader::integers(std::string_view key, IntegerRange range) {
  std::vector<std::int64_t> values;
  const std::string pointer = append_pointer(pointer_, key);
  for (const Json& element : array(key)) {
    values.push_back(integer_at(element, append_pointer(pointer, std::to_string(values.size())), range));
  }
  return values;
}

std::vector<double> ObjectReader::numbers(std::string_view key, NumberRange range) {
  std::vector<double> values;
  const std::string pointer = append_pointer(pointer_, key);
  for (const Json& element : array(key)) {
    values.push_back(number_at(element, append_pointer(pointer, std::to_string(values.size())), range));
  }
  return values;
}

void ObjectReader::object(std::string_view key, const std::function<void(ObjectReader&)>& read) {
  ObjectReader member(at(key, "an object"), append_pointer(pointer_, key));
  read(member);
  member.finish();
}

void ObjectReader::objects(std::string_view key, const std::function<void(ObjectReader&)>& read) {
  const std::string pointer = append_pointer(pointer_, key);
  std::size_t position = 0;
  for (const Json& element : array(key)) {
    ObjectReader member(element, append_pointer(pointer, std::to_string(position++)));
    read(member);
    member.finish();
  }
}

void ObjectReader::members(std::string_view key, const ReadMember& read) {
  const std::string pointer = append_pointer(pointer_, key);
  for (const auto& [name, value] : object_at(at(key, "an object"), pointer).items())
    read(name, value, append_pointer(pointer, name));
}

const Json& ObjectReader::raw(std::string_view key) { return at(key, "see the document's description"); }

void ObjectReader::fail(std::string_view key, const std::string& message) const {
  fail_at(append_pointer(pointer_, key), message);
}

void ObjectReader::fail(const std::string& message) const { fail_at(pointer_, message); }

void ObjectReader::finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string allowed;
    for (const std::string& name : known_) allowed.append(allowed.empty() ? "" : ", ").append(name);
    fail(key, "unknown key; use one of " + allowed);
  }
}

void read_document(const Json& json, std::string_view format, int version,
                   const std::function<void(ObjectReader&)>& read, std::string pointer) {
  read_document(json, format, IntegerRange{version, version}, read, std::move(pointer));
}

void read_document(const Json& json, std::string_view format, IntegerRange versions,
                   const std::function<void(ObjectReader&)>& read, std::string pointer) {
  ObjectReader reader(json, std::move(pointer));
  if (const std::string actual = reader.text("format"); actual != format) {
    reader.fail("format",
                "this is a \"" + actual + "\" document; a \"" + std::string(format) + "\" is needed here");
  }
  const std::int64_t actual = reader.integer("version");
  if (actual < versions.min || actual > versions.max) {
    const std::string known = versions.min == versions.max ? "version " + std::to_string(versions.max)
                                                           : "versions " + std::to_string(versions.min) +
                                                                 " to " + std::to_string(versions.max);
    reader.fail("version", "version " + std::to_string(actual) + " of " + std::string(format) +
                               " is not known; this program reads " + known);
  }
  read(reader);
  reader.finish();
}

}  // namespace pp
