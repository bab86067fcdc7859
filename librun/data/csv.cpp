// Tables of numbers as text: a header line with the names of the columns, one of which is the target. Kept in
// memory, since lines have no fixed length.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/text.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

/// The values of some columns, line by line: 8 bytes each, float64 or int64.
class Values final : public ByteSource {
 public:
  Values(std::string path, std::vector<std::string> columns)
      : path_(std::move(path)), columns_(std::move(columns)) {}

  template <class T>
  void add(T value) {
    static_assert(sizeof(T) == 8);
    bytes_.resize(bytes_.size() + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof(T));
  }
  std::uint64_t size() const override { return bytes_.size(); }
  bool in_memory() const override { return true; }
  void read(std::uint64_t offset, std::span<char> out) const override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
  std::string place(std::uint64_t offset) const override {
    const std::uint64_t line = offset / 8 / columns_.size() + 2, column = offset / 8 % columns_.size();
    return path_ + ": line " + std::to_string(line) + ", column \"" + columns_[column] + "\"";
  }
  const std::vector<std::string>& columns() const { return columns_; }

 private:
  std::string path_;
  std::vector<std::string> columns_;
  std::vector<char> bytes_;
};

std::string_view trim(std::string_view text) {
  constexpr auto kSpace = " \t\r";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The fields of a line, without spaces and quotes around them. Quotes do not protect commas: there are none in
// numbers.
void split(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  while (true) {
    const auto comma = line.find(',');
    std::string_view field = trim(line.substr(0, comma));
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
      field = trim(field.substr(1, field.size() - 2));
    fields.push_back(field);
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> number(std::string_view field) {
  if (field.starts_with('+')) field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

class Table {
 public:
  Table(const DataRequest& request, fs::path path)
      : path_(std::move(path)), request_(request), input_(first_input(request)) {
    for (const DataTensor& tensor : request.model.graph.targets)
      if (request.wants(tensor)) target_ = &tensor;
    if (FileBytes(path_).size() == 0) refuse("empty");
    std::ifstream file(path_, std::ios::binary);
    std::string line;
    std::getline(file, line);
    with_context(path_.string(), [&] { line.erase(0, line.size() - without_byte_order_mark(line).size()); });
    read_names(line, request.target_column);
    while (std::getline(file, line)) read_line(line);
    if (file.bad()) refuse("cannot be read to its end");
    if (lines_ == 0) refuse("a header line without lines of numbers");
  }

  SampleTable samples() const {
    const auto column = [&](const std::shared_ptr<Values>& values, const TensorType& type) {
      Records records{.source = path_.string(), .type = stored(type), .shape = type.shape};
      records.big_endian = std::endian::native == std::endian::big;
      records.parts.push_back({values, 0, 8 * values->columns().size(), lines_});
      return records;
    };
    const ModelGraph& graph = request_.model.graph;
    return {path_.string(),
            columns(request_, graph.inputs, [&](const DataTensor& t) { return column(inputs_, t.type); }),
            columns(request_, graph.targets, [&](const DataTensor& t) { return column(targets_, t.type); })};
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::data, path_.string() + ": " + message);
  }
  static ElementType stored(const TensorType& type) {
    return is_floating(type.dtype) ? ElementType::float64 : ElementType::int64;
  }

  void read_names(std::string_view line, const std::string& wanted) {
    split(line, fields_);
    if (std::all_of(fields_.begin(), fields_.end(), [](std::string_view f) { return number(f).has_value(); }))
      refuse("line 1 holds numbers; give a header line with the names of the columns");
    names_.assign(fields_.begin(), fields_.end());
    const auto expected = static_cast<std::size_t>(element_count(input_.type.shape));
    inputs_ = std::make_shared<Values>(path_.string(), names_);
    if (!target_ && wanted.empty() && names_.size() == expected) return;  // there is none
    const auto found = wanted.empty() ? names_.end() - 1 : std::find(names_.begin(), names_.end(), wanted);
    if (found == names_.end()) refuse("no column is named \"" + wanted + "\"; it has " + list_names());
    target_column_ = static_cast<std::size_t>(found - names_.begin());
    std::vector<std::string> others = names_;
    others.erase(others.begin() + (found - names_.begin()));
    if (others.size() != expected) {
      refuse(std::to_string(others.size()) + " columns beside the target \"" + *found +
             "\", the model's input \"" + input_.name + "\" has " + std::to_string(expected) +
             " numbers; choose another --target-column, or "
             "plan a model for this data");
    }
    if (target_ && element_count(target_->type.shape) != 1)
      refuse("one target column, the model's target \"" + target_->name + "\" is " +
             to_text(target_->type.shape));
    inputs_ = std::make_shared<Values>(path_.string(), std::move(others));
    targets_ = std::make_shared<Values>(path_.string(), std::vector{*found});
  }

  std::string list_names() const {
    constexpr std::size_t kMost = 20;
    std::string list;
    for (std::size_t i = 0; i < std::min(names_.size(), kMost); ++i)
      list.append(list.empty() ? "" : ", ").append(names_[i]);
    return names_.size() > kMost ? list + ", ..." : list;
  }

  void read_line(std::string_view line) {
    if (trim(line).empty()) {
      if (blank_ == 0) blank_ = lines_ + 2;
      return;
    }
    if (blank_ != 0) refuse("line " + std::to_string(blank_) + " is empty; only the end of the file may be");
    split(line, fields_);
    if (fields_.size() != names_.size()) {
      refuse("line " + std::to_string(lines_ + 2) + " has " + std::to_string(fields_.size()) +
             " columns, the header " + std::to_string(names_.size()));
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (i != target_column_) {
        add(i, *inputs_, input_.type.dtype);
      } else if (target_) {
        add(i, *targets_, target_->type.dtype);
      }
    }
    ++lines_;
  }

  void add(std::size_t column, Values& values, DType dtype) const {
    constexpr double kMostExact = 9007199254740992;  // 2^53
    const std::optional<double> value = number(fields_[column]);
    if (!value) refuse_field(column, "not a finite number");
    if (is_floating(dtype)) return values.add(*value);
    if (*value != std::floor(*value) || std::abs(*value) > kMostExact)
      refuse_field(column, "not an integer, as the model needs here");
    values.add(static_cast<std::int64_t>(*value));
  }

  [[noreturn]] void refuse_field(std::size_t column, const std::string& what) const {
    constexpr std::size_t kMost = 40;
    refuse("line " + std::to_string(lines_ + 2) + ", column \"" + names_[column] + "\": \"" +
           std::string(beginning(fields_[column], kMost)) + "\" is " + what);
  }

  fs::path path_;
  const DataRequest& request_;
  const DataTensor& input_;
  const DataTensor* target_ = nullptr;  ///< null: left out, with its column if there is one
  std::vector<std::string> names_;
  std::vector<std::string_view> fields_;      ///< of the current line
  std::optional<std::size_t> target_column_;  ///< none: all are the input's
  std::int64_t lines_ = 0;                    ///< without the header
  std::int64_t blank_ = 0;                    ///< the first empty line
  std::shared_ptr<Values> inputs_, targets_;
};

}  // namespace

std::optional<SampleTable> read_csv(const DataRequest& request, Subset subset) {
  require_one_of_each(request, "the columns of a table");
  const auto path = file_of(request, subset, ".csv");
  if (!path) return std::nullopt;
  return Table(request, *path).samples();
}

}  // namespace pp::run
