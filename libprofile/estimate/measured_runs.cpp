#include "libprofile/estimate/measured_runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/error.h"

namespace pp::profile {

namespace {

constexpr std::array<std::string_view, 24> kColumns{"model",
                                                    "micro_batch",
                                                    "micro_batches",
                                                    "stages",
                                                    "replicas",
                                                    "tensor",
                                                    "context",
                                                    "shards",
                                                    "sharding",
                                                    "chunks",
                                                    "sequence_parallel",
                                                    "recompute",
                                                    "dtype",
                                                    "precision",
                                                    "sharded",
                                                    "trainer",
                                                    "node",
                                                    "cards",
                                                    "card_bytes_per_s",
                                                    "card_latency_s",
                                                    "link_bytes_per_s",
                                                    "step_s",
                                                    "peak_bytes",
                                                    "ran"};
constexpr double kMostSeconds = 1e6, kMostBytes = 1e18;
constexpr std::array<std::string_view, 4> kRequired{"model", "micro_batch", "micro_batches", "step_s"};

[[noreturn]] void refuse_line(int line, const std::string& what) {
  throw Error(ErrorKind::data, "line " + std::to_string(line) + ": " + what);
}

/// Fields of one line; quotes may hold commas, and two of them stand for one.
std::vector<std::string> fields_of(std::string_view line, int number) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[i++];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) refuse_line(number, "a quote is not closed");
  return fields;
}

class Row {
 public:
  Row(const std::vector<std::string>& header, std::vector<std::string> fields, int line) : line_(line) {
    if (fields.size() != header.size()) {
      refuse_line(line, "has " + std::to_string(fields.size()) + " fields, but the header names " +
                            std::to_string(header.size()) + "; quote models that hold commas");
    }
    for (std::size_t i = 0; i < header.size(); ++i) fields_[header[i]] = std::move(fields[i]);
  }

  std::string text(const std::string& column, const std::string& otherwise = "") const {
    const auto found = fields_.find(column);
    return found == fields_.end() || found->second.empty() ? otherwise : found->second;
  }
  int count(const std::string& column, int otherwise = 1) const {
    const std::string text = this->text(column, std::to_string(otherwise));
    int value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < 1)
      refuse_line(line_, column + " must be a whole number from 1, not \"" + text + "\"");
    return value;
  }
  double number(const std::string& column, double most) const {
    const std::string text = this->text(column);
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !(value > 0 && value < most))
      refuse_line(line_, column + " must be a number above 0, not \"" + text + "\"");
    return value;
  }
  bool flag(const std::string& column, bool otherwise) const {
    const std::string text = this->text(column, otherwise ? "1" : "0");
    if (text != "0" && text != "1") refuse_line(line_, column + " must be 0 or 1, not \"" + text + "\"");
    return text == "1";
  }

 private:
  int line_;
  std::map<std::string, std::string> fields_;
};

MeasuredRun run_of(const Row& row, int line) {
  MeasuredRun run;
  run.model = row.text("model");
  if (run.model.empty()) refuse_line(line, "model is empty; name a family with its arguments, or a file");
  run.micro_batch = row.count("micro_batch");
  run.micro_batches = row.count("micro_batches");
  run.stages = row.count("stages");
  run.replicas = row.count("replicas");
  run.tensor_degree = row.count("tensor");
  run.context_degree = row.count("context");
  run.shard_group.degree = row.count("shards");
  if (const std::string sharding = row.text("sharding"); !sharding.empty())
    run.shard_group.sharding =
        parse_enum<Sharding>(sharding, "line " + std::to_string(line) + ": sharding", ErrorKind::data);
  if (run.replicas % run.shard_group.degree != 0)
    refuse_line(line, "shards " + std::to_string(run.shard_group.degree) + " must divide the " +
                          std::to_string(run.replicas) + " replicas, of which they are");
  if (run.shard_group.degree > 1 && run.stages > 1)
    refuse_line(line, "shards " + std::to_string(run.shard_group.degree) +
                          " are of runs in one stage, not in " + std::to_string(run.stages));
  run.chunks = row.count("chunks");
  run.node = row.count("node", run.node);
  run.cards = row.count("cards");
  if (!row.text("card_bytes_per_s").empty())
    run.card.bandwidth = BytesPerSecond(row.number("card_bytes_per_s", kMostBytes));
  if (!row.text("card_latency_s").empty()) run.card.latency = Seconds(row.number("card_latency_s", 1));
  if (!row.text("link_bytes_per_s").empty())
    run.link = BytesPerSecond(row.number("link_bytes_per_s", kMostBytes));
  run.trainer = row.text("trainer");
  run.sequence_parallel = row.flag("sequence_parallel", true);
  run.recompute = row.flag("recompute", false);
  run.dtype = parse_run_type(row.text("dtype", "bfloat16"), "line " + std::to_string(line) + ": dtype",
                             ErrorKind::data);
  run.precision = row.text("precision", run.precision);
  run.sharded = row.flag("sharded", false);
  run.step = Seconds(row.number("step_s", kMostSeconds));
  if (!row.text("peak_bytes").empty())
    run.peak = Bytes(static_cast<std::int64_t>(row.number("peak_bytes", kMostBytes)));
  run.line = line;
  return run;
}

void check_header(const std::vector<std::string>& header, int line) {
  for (const std::string& column : header) {
    if (std::ranges::find(kColumns, column) == kColumns.end()) {
      std::string known;
      for (const std::string_view name : kColumns) known.append(known.empty() ? "" : ", ").append(name);
      refuse_line(line, "unknown column \"" + column + "\"; use " + known);
    }
    if (std::ranges::count(header, column) > 1)
      refuse_line(line, "column " + column + " is there twice; keep one");
  }
  for (const std::string_view column : kRequired) {
    if (std::ranges::find(header, column) == header.end())
      refuse_line(line, "the header has no column " + std::string(column) + "; add it");
  }
}

}  // namespace

std::vector<MeasuredRun> parse_measured_runs(std::string_view text) {
  std::vector<MeasuredRun> runs;
  std::vector<std::string> header;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string> fields = fields_of(line, number);
    if (header.empty()) {
      check_header(fields, number);
      header = std::move(fields);
    } else {
      const Row row(header, std::move(fields), number);
      if (row.flag("ran", true)) runs.push_back(run_of(row, number));
    }
  }
  return runs;
}

FitError fit_error(const std::vector<double>& ratios) {
  FitError error;
  error.runs = static_cast<int>(ratios.size());
  if (ratios.empty()) return error;
  std::vector<double> absolute;
  for (const double ratio : ratios) {
    error.signed_mean += (ratio - 1) / error.runs;
    absolute.push_back(std::abs(ratio - 1));
  }
  error.mean = std::accumulate(absolute.begin(), absolute.end(), 0.0) / error.runs;
  std::ranges::sort(absolute);
  error.median = absolute[absolute.size() / 2];
  return error;
}

std::pair<std::vector<std::size_t>, std::vector<std::size_t>> random_halves(std::size_t count, unsigned seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(seed);
  for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((count + 1) / 2);
  return {{order.begin(), middle}, {middle, order.end()}};
}

}  // namespace pp::profile
