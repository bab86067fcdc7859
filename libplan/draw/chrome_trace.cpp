// The Trace Event Format: complete events ("X") with microseconds, one row ("tid") per worker in process 0, one
// per link direction in process 1, counters ("C") in process 2, arrows ("s" to "f") from messages to
// operations. Written as text at once, without JSON values between: every string is one of ours and needs no
// escapes.
#include "libplan/draw/chrome_trace.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libplan/draw/message_consumers.h"
#include "libplan/draw/op_style.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {
namespace {

constexpr int kWorkers = 0;
constexpr int kLinks = 1;
constexpr int kMemory = 2;
constexpr std::size_t kMostFlows = 20000;
constexpr std::size_t kBytesPerEvent = 112;  // to reserve

/// Rounded before times are subtracted, so that operations that touch still do.
std::int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

class TraceWriter {
 public:
  explicit TraceWriter(std::size_t events) {
    text_.reserve(events * kBytesPerEvent);
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  }

  void process(int id, std::string_view name) {
    metadata("process_name", id, 0, "name", "\"" + std::string(name) + "\"");
    metadata("process_sort_index", id, 0, "sort_index", std::to_string(id));
  }
  void row(int process, int row, const std::string& name) {
    metadata("thread_name", process, row, "name", "\"" + name + "\"");
    metadata("thread_sort_index", process, row, "sort_index", std::to_string(row));
  }

  /// The caller may append `,"args":...` before close().
  TraceWriter& slice(const Op& op, std::string_view category, int process, int row, Seconds start,
                     Seconds end) {
    open("X", process, row, nanoseconds(start));
    text_ += ",\"dur\":";
    microseconds(nanoseconds(end) - nanoseconds(start));
    text_ += ",\"name\":\"";
    add_op(op);
    text_.append("\",\"cat\":\"").append(category).append(1, '"');
    return *this;
  }
  TraceWriter& counter(std::int64_t worker, Seconds time) {
    open("C", kMemory, 0, nanoseconds(time));
    text_ += ",\"name\":\"worker ";
    add(worker);
    text_ += '"';
    return *this;
  }
  TraceWriter& arrow(std::string_view phase, std::int64_t id, int process, int row, Seconds time) {
    open(phase, process, row, nanoseconds(time));
    text_ += ",\"name\":\"needs\",\"cat\":\"message\",\"id\":";
    add(id);
    return *this;
  }
  /// Else an arrow ends at the next slice that begins.
  TraceWriter& to_enclosing() {
    text_ += ",\"bp\":\"e\"";
    return *this;
  }
  TraceWriter& bytes(Bytes bytes) {
    text_ += ",\"args\":{\"bytes\":";
    add(bytes.value);
    text_ += '}';
    return *this;
  }
  void close() { text_ += "},\n"; }

  std::string finish(const Context& facts) && {
    if (text_.ends_with(",\n")) text_.erase(text_.size() - 2, 1);
    text_ += ']';
    if (!facts.empty()) text_ += ",\"otherData\":" + Json(facts).dump();
    return std::move(text_) + "}\n";
  }

 private:
  void metadata(std::string_view what, int process, int row, std::string_view key, const std::string& value) {
    text_.append("{\"ph\":\"M\",\"pid\":").append(std::to_string(process));
    text_.append(",\"tid\":").append(std::to_string(row)).append(",\"name\":\"").append(what);
    text_.append("\",\"args\":{\"").append(key).append("\":").append(value).append("}},\n");
  }

  void open(std::string_view phase, int process, int row, std::int64_t time) {
    text_.append("{\"ph\":\"").append(phase).append("\",\"pid\":");
    add(process);
    text_ += ",\"tid\":";
    add(row);
    text_ += ",\"ts\":";
    microseconds(time);
  }

  void add(std::int64_t value) {
    std::array<char, 24> digits{};
    text_.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  }
  void add_op(const Op& op) {
    text_ += name_of(op.kind);
    add(number(op.stage));
    if (!has_micro_batch(op.kind)) return;
    text_ += '.';
    add(op.micro_batch);
  }
  /// The shortest digits of whole nanoseconds, never an exponent.
  void microseconds(std::int64_t nanos) {
    std::array<char, 40> digits{};
    const double value = static_cast<double>(nanos) / 1e3;
    text_.append(
        digits.data(),
        std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed).ptr);
  }

  std::string text_;
};

/// The rows of process 1: one per direction between two workers that was used, by sender, then receiver.
class LinkRows {
 public:
  explicit LinkRows(const SimulationResult& result)
      : workers_(result.busy.size()), rows_(workers_ * workers_, kUnused) {
    for (const MessageEvent& message : result.messages) row(message) = 0;
  }
  int& row(const MessageEvent& message) { return rows_[index(message.from) * workers_ + index(message.to)]; }

  void declare(TraceWriter& trace) {
    int next = 0;
    for (std::size_t link = 0; link < rows_.size(); ++link) {
      if (rows_[link] == kUnused) continue;
      if (next == 0) trace.process(kLinks, "links");
      rows_[link] = next++;
      trace.row(kLinks, rows_[link],
                "worker " + std::to_string(link / workers_) + " to " + std::to_string(link % workers_));
    }
  }

 private:
  static constexpr int kUnused = -1;
  std::size_t workers_;
  std::vector<int> rows_;  ///< [from * workers + to]
};

void add_operations(TraceWriter& trace, const SimulationResult& result) {
  for (const OpEvent& event : result.ops) {
    trace.slice(event.op, style_of(event.op.kind).name, kWorkers, number(event.worker), event.start, event.end)
        .close();
  }
}

void add_messages(TraceWriter& trace, const SimulationResult& result, LinkRows& links) {
  for (const MessageEvent& message : result.messages) {
    const bool forward = message.producer.kind == OpKind::forward;
    trace
        .slice(message.producer, forward ? "activation" : "gradient", kLinks, links.row(message), message.start,
               message.end)
        .bytes(message.bytes)
        .close();
  }
}

/// Viewers tie an arrow to a slice with length, so a message that takes no time has none.
void add_arrows(TraceWriter& trace, const SimulationResult& result, LinkRows& links) {
  const std::vector<const OpEvent*> consumers = message_consumers(result);
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    const MessageEvent& message = result.messages[i];
    if (consumers[i] == nullptr || nanoseconds(message.end) <= nanoseconds(message.start)) continue;
    const auto id = static_cast<std::int64_t>(i);
    trace.arrow("s", id, kLinks, links.row(message), message.start).close();
    trace.arrow("f", id, kWorkers, number(consumers[i]->worker), consumers[i]->start).to_enclosing().close();
  }
}

void add_memory(TraceWriter& trace, std::span<const MemoryCurve> memory) {
  if (!memory.empty()) trace.process(kMemory, "bytes held");
  for (std::size_t w = 0; w < memory.size(); ++w) {
    for (const MemoryStep& step : memory[w]) {
      trace.counter(static_cast<std::int64_t>(w), step.time).bytes(total(step.held)).close();
    }
  }
}

}  // namespace

std::string chrome_trace(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const Context& facts) {
  std::size_t steps = 0;
  for (const MemoryCurve& curve : memory) steps += curve.size();
  TraceWriter trace(result.ops.size() + result.messages.size() + steps);
  trace.process(kWorkers, "workers");
  for (std::size_t w = 0; w < result.busy.size(); ++w) {
    trace.row(kWorkers, static_cast<int>(w), "worker " + std::to_string(w));
  }
  LinkRows links(result);
  links.declare(trace);
  add_operations(trace, result);
  add_messages(trace, result, links);
  if (result.messages.size() <= kMostFlows) add_arrows(trace, result, links);
  add_memory(trace, memory);
  return std::move(trace).finish(facts);
}

}  // namespace pp::plan
