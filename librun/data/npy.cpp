// NumPy's .npy files: 6 bytes of magic, the version, the length of a header, the header as a Python literal
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }, then the elements.
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::array kNpyTypes{std::pair{ElementType::boolean, "b1"sv}, std::pair{ElementType::uint8, "u1"sv},
                               std::pair{ElementType::int8, "i1"sv},    std::pair{ElementType::uint16, "u2"sv},
                               std::pair{ElementType::int16, "i2"sv},   std::pair{ElementType::uint32, "u4"sv},
                               std::pair{ElementType::int32, "i4"sv},   std::pair{ElementType::int64, "i8"sv},
                               std::pair{ElementType::float16, "f2"sv}, std::pair{ElementType::float32, "f4"sv},
                               std::pair{ElementType::float64, "f8"sv}};

[[noreturn]] void refuse_npy(const std::string& message) { throw Error(ErrorKind::data, message); }
[[noreturn]] void refuse_file(const std::string& message) { refuse_npy("not a .npy file: " + message); }

/// Reads the header's literal from left to right.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  /// Whether `token` comes next.
  bool sees(std::string_view token) {
    skip_spaces();
    return rest_.starts_with(token);
  }
  /// The same; takes it.
  bool take(std::string_view token) {
    const bool there = sees(token);
    if (there) rest_.remove_prefix(token.size());
    return there;
  }
  void expect(std::string_view token) {
    if (!take(token)) refuse_file("its header lacks `" + std::string(token) + "` before `" + next() + "`");
  }
  std::string string() {
    const char quote = take("'") ? '\'' : '"';
    if (quote == '"') expect("\"");
    const auto end = rest_.find(quote);
    if (end == std::string_view::npos) refuse_file("a name in its header has no end");
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    if (take("True")) return true;
    expect("False");
    return false;
  }
  Shape tuple() {
    Shape shape;
    expect("(");
    while (!take(")")) {
      shape.push_back(integer());
      if (!take(",")) {
        expect(")");
        break;
      }
    }
    return shape;
  }
  void end() {
    skip_spaces();
    if (!rest_.empty()) refuse_file("its header goes on after the dictionary with `" + next() + "`");
  }

 private:
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n\t"), rest_.size())); }
  std::string next() const { return std::string(rest_.substr(0, 20)); }
  std::int64_t integer() {
    skip_spaces();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) refuse_file("its shape has no count at `" + next() + "`");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::string_view rest_;
};

struct Header {
  ElementType type = ElementType::uint8;
  bool big_endian = false;
  Shape shape;
};

void set_type(Header& header, const std::string& descr) {
  std::string known;
  for (const auto& [type, name] : kNpyTypes) {
    known.append(known.empty() ? "" : ", ").append(name);
    if (descr.size() != 3 || descr.substr(1) != name) continue;
    if (descr[0] != '<' && descr[0] != '>' && !(size_of(type) == 1 && descr[0] == '|')) continue;
    header.type = type;
    header.big_endian = descr[0] == '>';
    return;
  }
  refuse_npy("elements are \"" + descr + "\", readable are " + known + " behind < or > (| for one byte)");
}

Header parse(std::string_view text) {
  Header header;
  bool fortran_order = false;
  std::set<std::string> missing{"descr", "fortran_order", "shape"};
  Literal literal(text);
  literal.expect("{");
  do {
    const std::string key = literal.string();
    if (missing.erase(key) == 0) refuse_file("its header has \"" + key + "\" twice, or without need");
    literal.expect(":");
    if (key == "descr") {
      if (literal.take("[")) refuse_npy("elements with several fields; give an array of numbers");
      set_type(header, literal.string());
    } else if (key == "shape") {
      header.shape = literal.tuple();
    } else {
      fortran_order = literal.boolean();
    }
  } while (literal.take(",") && !literal.sees("}"));
  literal.expect("}");
  literal.end();
  if (!missing.empty()) refuse_file("its header lacks " + *missing.begin());
  if (fortran_order && header.shape.size() > 1)
    refuse_npy("in Fortran order; write it with numpy.ascontiguousarray");
  return header;
}

std::string bytes_at(const FileBytes& file, std::uint64_t offset, std::uint64_t count) {
  if (count > file.size() || offset > file.size() - count)
    with_context(file.path().string(), [] { refuse_file("it ends inside the header"); });
  std::string bytes(static_cast<std::size_t>(count), '\0');
  file.read(offset, bytes);
  return bytes;
}

/// Bytes that say how long the header is.
std::uint64_t length_bytes(std::string_view begin) {
  if (!begin.starts_with(kMagic)) refuse_file("its first bytes are not \\x93NUMPY");
  const int version = static_cast<unsigned char>(begin[kMagic.size()]);
  if (version < 1 || version > 3)
    refuse_file("its version is " + std::to_string(version) + ", 1 to 3 are known");
  return version == 1 ? 2 : 4;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

Records read_npy(const fs::path& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  const std::string source = path.string();
  const std::string begin = bytes_at(*file, 0, kMagic.size() + 2);
  const std::string length =
      bytes_at(*file, begin.size(), with_context(source, [&] { return length_bytes(begin); }));
  const std::uint64_t header_at = begin.size() + length.size(), offset = header_at + little_endian(length);
  const std::string text = bytes_at(*file, header_at, little_endian(length));
  const Header header = with_context(source, [&] { return parse(text); });
  Records records = dense_records(source, file, offset, header.shape, header.type);
  records.big_endian = header.big_endian;
  const std::uint64_t found = file->size() - offset, expected = dense_bytes(source, header.shape, header.type);
  if (found == expected) return records;
  throw Error(ErrorKind::data, source + ": " + std::to_string(found) + " bytes of elements, " +
                                   std::to_string(expected) + " expected for " +
                                   std::string(name_of(header.type)) + " " + to_text(header.shape));
}

std::optional<SampleTable> read_npy_folder(const DataRequest& request, Subset subset) {
  const ModelGraph& graph = request.model.graph;
  const auto path = [&](const std::string& prefix, const DataTensor& tensor) {
    return request.path / (prefix + tensor.name + ".npy");
  };
  const DataTensor& first = first_input(request);
  const std::string prefix = subset == Subset::test ? "test-" : is_there(path("train-", first)) ? "train-" : "";
  if (subset == Subset::test && !is_there(path(prefix, first))) return std::nullopt;
  const auto read = [&](const DataTensor& tensor) { return read_npy(path(prefix, tensor)); };
  return SampleTable{request.path.string(), columns(request, graph.inputs, read),
                     columns(request, graph.targets, read)};
}

}  // namespace pp::run
