// The Trace Event Format that Perfetto and chrome://tracing read: complete events ("X") with microseconds, one
// row ("tid") per worker in process 0, one per link direction in process 1.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/simulate/simulate.h"

namespace pp::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWorkers = 0;
constexpr int kLinks = 1;

/// Whole nanoseconds, so that 0.1 s is 100000 and not 100000.00000000001.
double microseconds(Seconds time) { return std::round(time.count() * 1e9) / 1e3; }

const char* category(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return "forward";
    case OpKind::backward: return "backward";
    case OpKind::input_gradient: return "input gradient";
    case OpKind::weight_gradient: return "weight gradient";
    case OpKind::recompute: return "recompute";
    case OpKind::all_reduce: return "all-reduce";
    case OpKind::update: return "update";
    case OpKind::load: return "load";
    case OpKind::evict: return "evict";
  }
  return "";
}

Json metadata(const char* what, int process, int row, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}};
}

Json slice(const std::string& name, const char* kind, int process, int row, Seconds start, Seconds end) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", kind},
          {"pid", process},
          {"tid", row},
          {"ts", microseconds(start)},
          {"dur", microseconds(end - start)}};
}

/// Writes events one at a time: a trace of a million operations need not stand in memory as JSON values.
class Trace {
 public:
  void add(const Json& event) { text_.append(text_.empty() ? "" : ",\n").append(event.dump()); }
  std::string finish() const { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text_ + "\n]}\n"; }

 private:
  std::string text_;
};

}  // namespace

std::string chrome_trace(const SimulationResult& result) {
  Trace trace;
  trace.add(metadata("process_name", kWorkers, 0, "workers"));
  for (std::size_t w = 0; w < result.busy.size(); ++w) {
    trace.add(metadata("thread_name", kWorkers, static_cast<int>(w), "worker " + std::to_string(w)));
  }
  std::map<std::pair<int, int>, int> rows;
  for (const MessageEvent& message : result.messages) rows[{number(message.from), number(message.to)}] = 0;
  if (!rows.empty()) trace.add(metadata("process_name", kLinks, 0, "links"));
  int row = 0;
  for (auto& [link, assigned] : rows) {
    assigned = row++;
    trace.add(metadata("thread_name", kLinks, assigned,
                       "worker " + std::to_string(link.first) + " to " + std::to_string(link.second)));
  }
  for (const OpEvent& event : result.ops) {
    trace.add(slice(to_text(event.op), category(event.op.kind), kWorkers, number(event.worker), event.start,
                    event.end));
  }
  for (const MessageEvent& message : result.messages) {
    const bool forward = message.producer.kind == OpKind::forward;
    Json event = slice(to_text(message.producer), forward ? "activation" : "gradient", kLinks,
                       rows[{number(message.from), number(message.to)}], message.start, message.end);
    event["args"] = {{"bytes", message.bytes.value}};
    trace.add(event);
  }
  return trace.finish();
}

}  // namespace pp::plan
