// The Trace Event Format: complete events ("X") with microseconds, one row ("tid") per worker in process 0, one
// per link direction in process 1, counters ("C") in process 2, predicted operations in 3, arrows ("s" to "f")
// from messages to operations. Written as text at once, without JSON values between: every string is one of
// ours and needs no escapes.
#include "libplan/draw/chrome_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <limits>
#include <nlohmann/json.hpp>

#include "libplan/draw/svg_labels.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {

namespace {

constexpr int kWorkers = 0;
constexpr int kLinks = 1;
constexpr int kMemory = 2;
constexpr int kPredicted = 3;
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

void declare_workers(TraceWriter& trace, int process, std::string_view name, std::size_t workers) {
  trace.process(process, name);
  for (std::size_t w = 0; w < workers; ++w)
    trace.row(process, static_cast<int>(w), "worker " + std::to_string(w));
}

void add_operations(TraceWriter& trace, int process, std::span<const OpEvent> ops) {
  for (const OpEvent& event : ops) {
    trace.slice(event.op, style_of(event.op.kind).name, process, number(event.worker), event.start, event.end)
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

bool reads_activation(OpKind kind) { return kind == OpKind::forward; }
bool reads_gradient(OpKind kind) { return kind == OpKind::backward || kind == OpKind::input_gradient; }

/// Where an operation stands on the way of one micro-batch over one worker.
struct Place {
  int worker = 0;
  int micro_batch = 0;
  int progress = 0;  ///< the stage, negative for gradients: it grows along the way
  double start = 0;
  auto operator<=>(const Place&) const = default;
};

/// The readers of one direction, by place.
class Readers {
 public:
  Readers(const SimulationResult& result, bool (*reads)(OpKind), int direction) : direction_(direction) {
    for (const OpEvent& event : result.ops) {
      if (reads(event.op.kind)) readers_.push_back({place(event.worker, event.op, event.start), &event});
    }
    std::ranges::sort(readers_, {}, &Reader::place);
  }

  const OpEvent* reader_of(const MessageEvent& message) const {
    // The next stage on that worker first, then the first time that it runs after the message was sent.
    Place wanted = place(message.to, message.producer, Seconds(std::numeric_limits<double>::infinity()));
    const Reader* next = at_or_after(wanted);
    if (next == nullptr) return nullptr;
    wanted.progress = next->place.progress;
    wanted.start = message.start.count();
    const Reader* found = at_or_after(wanted);
    return found != nullptr && found->place.progress == wanted.progress ? found->event : nullptr;
  }

 private:
  struct Reader {
    Place place;
    const OpEvent* event = nullptr;
  };

  Place place(WorkerId worker, const Op& op, Seconds start) const {
    return {number(worker), op.micro_batch, direction_ * number(op.stage), start.count()};
  }

  /// The reader of the same worker and micro-batch.
  const Reader* at_or_after(const Place& wanted) const {
    const auto found = std::ranges::lower_bound(readers_, wanted, {}, &Reader::place);
    const bool same = found != readers_.end() && found->place.worker == wanted.worker &&
                      found->place.micro_batch == wanted.micro_batch;
    return same ? &*found : nullptr;
  }

  int direction_;
  std::vector<Reader> readers_;
};

}  // namespace

std::string chrome_trace(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const Context& facts, std::span<const OpEvent> predicted) {
  std::size_t steps = 0;
  for (const MemoryCurve& curve : memory) steps += curve.size();
  TraceWriter trace(result.ops.size() + result.messages.size() + steps + predicted.size());
  declare_workers(trace, kWorkers, "workers", result.busy.size());
  if (!predicted.empty()) declare_workers(trace, kPredicted, "predicted", result.busy.size());
  LinkRows links(result);
  links.declare(trace);
  add_operations(trace, kWorkers, result.ops);
  add_operations(trace, kPredicted, predicted);
  add_messages(trace, result, links);
  if (result.messages.size() <= kMostFlows) add_arrows(trace, result, links);
  add_memory(trace, memory);
  return std::move(trace).finish(facts);
}

std::vector<const OpEvent*> message_consumers(const SimulationResult& result) {
  const Readers activations(result, reads_activation, 1);
  const Readers gradients(result, reads_gradient, -1);
  std::vector<const OpEvent*> consumers;
  consumers.reserve(result.messages.size());
  for (const MessageEvent& message : result.messages) {
    const bool forward = message.producer.kind == OpKind::forward;
    consumers.push_back((forward ? activations : gradients).reader_of(message));
  }
  return consumers;
}

}  // namespace pp::plan
