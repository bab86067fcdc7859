// Text to Json, with the guards that nlohmann's own parser does not have (duplicate keys, integers beyond 64
// bits, depth, size), and Json to text: the same value gives the same bytes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/json_reader.h"

namespace pp {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxDepth = 64;

/// `line 3, column 7` of the byte at `offset`; both count from 1, columns in bytes.
std::string place(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - start + 1);
}

/// nlohmann's text without its identifier, position and state of the parser: `unexpected ']'; expected string
/// literal`.
std::string plain_words(std::string_view what) {
  for (const std::string_view mark :
       {std::string_view(" - "), std::string_view("syntax error "), std::string_view("] ")}) {
    if (const auto at = what.find(mark); at != std::string_view::npos) {
      what.remove_prefix(at + mark.size());
      break;
    }
  }
  return std::string(what);
}

std::string describe_error(std::string_view text, std::size_t position, const std::exception& error) {
  const std::size_t at = position == 0 ? 0 : position - 1;  // nlohmann counts the bytes read
  std::string message = place(text, std::min(at, text.size())) + ": not valid JSON: ";
  const std::string_view rest = text.substr(std::min(at, text.size()));
  const std::string_view what = error.what();
  if (text.empty()) return message + "the file is empty";
  if (rest.starts_with("NaN") || rest.starts_with("Inf")) {
    return message + "NaN and infinity are not allowed; write a finite number";
  }
  if (what.find("number overflow") != std::string_view::npos) return message + "the number is too large";
  if (what.find("unexpected end of input") != std::string_view::npos)
    return message + "the file ends too early";
  return message + plain_words(what);
}

/// Receives the parser's events and builds the value; every open object or array is one frame.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  Json take() { return std::move(result_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }

  bool number_float(double value, const std::string& literal) override {
    if (literal.find_first_of(".eE") == std::string::npos)
      refuse("the integer " + literal + " does not fit in 64 bits");
    return add(value);
  }
  bool key(std::string& name) override {
    frames_.back().key = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override {
    refuse_duplicates();
    return close();
  }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    throw Error(ErrorKind::data, describe_error(text_, position, error));
  }

 private:
  struct Frame {
    Json value;
    std::string key;  ///< of the member being read, when an object
  };

  std::string pointer() const {
    std::string pointer;
    for (const Frame& frame : frames_) {
      pointer =
          append_pointer(pointer, frame.value.is_object() ? frame.key : std::to_string(frame.value.size()));
    }
    return pointer;
  }
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::data, (frames_.empty() ? "" : pointer() + ": ") + message);
  }

  bool open(Json value) {
    if (frames_.size() == kMaxDepth) {
      throw Error(ErrorKind::data,
                  "nested deeper than " + std::to_string(kMaxDepth) + " levels; no document of ours is");
    }
    frames_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (frames_.empty()) {
      result_ = std::move(value);
    } else if (Frame& frame = frames_.back(); frame.value.is_array()) {
      frame.value.push_back(std::move(value));
    } else {
      // At the end without nlohmann's search for an equal key, which is linear; end_object() looks for
      // duplicates.
      frame.value.get_ref<Json::object_t&>().push_back({std::move(frame.key), std::move(value)});
    }
    return true;
  }
  void refuse_duplicates() {
    std::vector<std::string_view> keys;
    for (const auto& [name, value] : frames_.back().value.get_ref<const Json::object_t&>())
      keys.push_back(name);
    std::sort(keys.begin(), keys.end());
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
      frames_.back().key = *twice;
      refuse("the key appears twice; remove one of them");
    }
  }

  std::string_view text_;
  std::vector<Frame> frames_;
  Json result_;
};

}  // namespace

std::string append_pointer(std::string_view pointer, std::string_view key) {
  std::string result = std::string(pointer) + "/";
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

Json parse_json(std::string_view text) {
  if (text.size() > kMaxBytes) {
    throw Error(ErrorKind::data,
                "the text has " + std::to_string(text.size()) + " bytes; the limit is 256 MiB");
  }
  Builder builder(text);
  if (!Json::sax_parse(text, &builder)) throw Error(ErrorKind::data, "not valid JSON");
  return builder.take();
}

namespace {

constexpr std::size_t kLineWidth = 120;

void require_finite(const Json& json, const std::string& pointer) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw Error(ErrorKind::internal, pointer + ": NaN or infinity cannot be written to a document");
  }
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) require_finite(value, append_pointer(pointer, key));
}

/// Text that is not UTF-8 (a host name, a path in a context) is written with replacement characters.
std::string scalar(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// `{ "a": 1, "b": [1, 2] }`; stops growing soon after `limit` characters, the caller only compares the length
/// then.
void append_line(std::string& text, const Json& json, std::size_t limit) {
  if (!json.is_structured() || json.empty()) {
    text += scalar(json);
    return;
  }
  text += json.is_object() ? "{ " : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (text.size() > limit) return;
    if (!first) text += ", ";
    first = false;
    if (json.is_object()) text.append(scalar(key)).append(": ");
    append_line(text, value, limit);
  }
  text += json.is_object() ? " }" : "]";
}

/// What fits stands on one line, everything else one member a line.
void append_indented(std::string& text, const Json& json, std::size_t indent, std::size_t column) {
  std::string line;
  append_line(line, json, kLineWidth);
  if (!json.is_structured() || json.empty() || (indent > 0 && column + line.size() <= kLineWidth)) {
    text += line;
    return;
  }
  text += json.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    text += first ? "\n" : ",\n";
    first = false;
    const std::size_t start = text.size();
    text.append(indent + 2, ' ');
    if (json.is_object()) text.append(scalar(key)).append(": ");
    append_indented(text, value, indent + 2, text.size() - start);
  }
  text.append("\n").append(indent, ' ').append(json.is_object() ? "}" : "]");
}

}  // namespace

std::string dump_json(const Json& json) {
  require_finite(json, "");
  std::string text;
  append_indented(text, json, 0, 0);
  text += '\n';
  return text;
}

std::string dump_json_compact(const Json& json) {
  require_finite(json, "");
  return scalar(json);
}

}  // namespace pp
