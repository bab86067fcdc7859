#include "libplan/explorer/timeline_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "libplan/draw/timeline_rows.h"

namespace pp::plan {
namespace {

/// A tick is a pixel where 1,000 pixels show a ten-thousandth of the timeline, which is as near as the page
/// goes.
constexpr double kTicks = 1e7;
constexpr int kNoMicroBatch = -1, kJoined = -2;

/// Workers of one row and what they add to the micro-batches of the first.
struct Row {
  std::vector<std::size_t> workers;
  std::vector<int> shifts;
};

/// What `b` adds to the micro-batches of `a`, where both do the same at the same times.
std::optional<int> shift_between(const TimelineRow& a, const TimelineRow& b) {
  if (a.ops.size() != b.ops.size()) return std::nullopt;
  std::optional<int> shift;
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const OpEvent& x = *a.ops[i];
    const OpEvent& y = *b.ops[i];
    if (x.op.kind != y.op.kind || x.op.stage != y.op.stage || x.start != y.start || x.end != y.end)
      return std::nullopt;
    const int apart = y.op.micro_batch - x.op.micro_batch;
    if (!has_micro_batch(x.op.kind)) {
      if (apart != 0) return std::nullopt;
    } else if (apart != shift.value_or(apart)) {
      return std::nullopt;
    } else {
      shift = apart;
    }
  }
  return shift.value_or(0);
}

std::vector<Row> equal_rows(const std::vector<TimelineRow>& rows, std::span<const MemoryCurve> memory) {
  std::vector<Row> found;
  for (std::size_t w = 0; w < rows.size(); ++w) {
    std::optional<int> shift;
    const auto same = [&](const Row& row) {
      const std::size_t first = row.workers.front();
      shift = shift_between(rows[first], rows[w]);
      return shift && (memory.empty() || memory[first] == memory[w]);
    };
    const auto row = std::ranges::find_if(found, same);
    if (row == found.end()) {
      found.push_back({{w}, {0}});
    } else {
      row->workers.push_back(w);
      row->shifts.push_back(*shift);
    }
  }
  return found;
}

/// So many significant ones, as few letters in the data.
Seconds with_digits(Seconds time, int digits) {
  if (time.count() <= 0) return Seconds(0);
  const double scale = std::pow(10, digits - 1 - static_cast<int>(std::floor(std::log10(time.count()))));
  return Seconds(std::round(time.count() * scale) / scale);
}

/// Values in the order of their first use, each once.
template <class Key>
class Table {
 public:
  int of(const Key& key) {
    const auto [place, is_new] = places_.try_emplace(key, static_cast<int>(keys_.size()));
    if (is_new) keys_.push_back(key);
    return place->second;
  }
  const std::vector<Key>& keys() const { return keys_; }

 private:
  std::map<Key, int> places_;
  std::vector<Key> keys_;
};

using OpType = std::tuple<int, int, double>;  // kind, stage, seconds
using Parts = std::array<std::int64_t, kMemoryParts.size()>;

class Encoder {
 public:
  Encoder(const SimulationResult& result, std::span<const MemoryCurve> memory, const TimelineLimits& limits)
      : result_(result),
        memory_(memory.size() == result.busy.size() && highest(memory) > Bytes(0)
                    ? memory
                    : std::span<const MemoryCurve>()),
        limits_(limits),
        rows_(timeline_rows(result)),
        groups_(equal_rows(rows_, memory_)),
        shortest_(shortest_drawn()) {}

  Json data() {
    Json rows = Json::array();
    const int columns = memory_columns();
    for (const Row& group : groups_) {
      Json& row = rows.emplace_back(Json::object());
      row["workers"] = group.workers;
      if (std::ranges::any_of(group.shifts, [](int shift) { return shift != 0; })) row["shifts"] = group.shifts;
      row["busy"] = rows_[group.workers.front()].busy.count();
      row["ops"] = operations(rows_[group.workers.front()]);
      if (!memory_.empty()) row["memory"] = memory_steps(memory_[group.workers.front()], columns);
    }
    Json types = Json::array();
    for (const auto& [kind, stage, seconds] : types_.keys()) types.push_back({kind, stage, seconds});
    return {{"length", result_.makespan.count()},
            {"ticks", kTicks},
            {"operations", result_.ops.size()},
            {"joined", shortest_.count()},
            {"types", std::move(types)},
            {"parts", parts_.keys()},
            {"rows", std::move(rows)}};
  }

 private:
  /// What operations() lists of a row.
  static std::size_t entries(const TimelineRow& row, Seconds shortest) {
    if (shortest.count() <= 0) return row.ops.size();
    std::size_t count = 0;
    for (const TimelineBox& box : timeline_boxes(row, shortest)) {
      const auto kinds = std::ranges::count_if(box.busy, [](Seconds busy) { return busy.count() > 0; });
      count += box.count == 1 ? 1 : static_cast<std::size_t>(kinds);
    }
    return count;
  }

  /// 0 where all operations may stand alone; else twice as long until they are few enough.
  Seconds shortest_drawn() const {
    const auto count = [&](Seconds shortest) {
      std::size_t all = 0;
      for (const Row& group : groups_) all += entries(rows_[group.workers.front()], shortest);
      return all;
    };
    Seconds shortest{};
    while (count(shortest) > limits_.operations && shortest < result_.makespan)
      shortest = shortest.count() > 0 ? 2 * shortest : result_.makespan / 1e6;
    return shortest;
  }

  std::int64_t ticks(Seconds time) const {
    return result_.makespan.count() > 0 ? std::llround(time / result_.makespan * kTicks) : 0;
  }

  Json operations(const TimelineRow& row) {
    Json list = Json::array();
    std::int64_t end = 0;
    const auto add = [&](OpKind kind, StageId stage, Seconds time, int micro_batch, std::int64_t start) {
      list.push_back(types_.of({static_cast<int>(kind), number(stage), time.count()}));
      list.push_back(micro_batch);
      list.push_back(start - end);
      end = start + ticks(time);
    };
    for (const TimelineBox& box : timeline_boxes(row, shortest_)) {
      const Op& op = box.op->op;
      if (box.count == 1) {
        add(op.kind, op.stage, length_of(box), has_micro_batch(op.kind) ? op.micro_batch : kNoMicroBatch,
            ticks(box.start));
        continue;
      }
      std::int64_t start = ticks(box.start);
      for (std::size_t kind = 0; kind < box.busy.size(); ++kind) {
        if (box.busy[kind].count() <= 0) continue;
        add(OpKind(kind), op.stage, rounded(box.busy[kind]), kJoined, start);
        start = end;
      }
    }
    return list;
  }

  /// Equal operations that began at other times differ in their last digits.
  static Seconds length_of(const TimelineBox& box) { return with_digits(box.end - box.start, 9); }

  /// Of joined ones a length is a picture, not a figure: 32 steps of what was joined.
  Seconds rounded(Seconds time) const {
    return with_digits(std::max(1.0, std::round(time / shortest_ * 32)) * shortest_ / 32, 4);
  }

  /// Steps of all rows fit the limit as they are: 0. Else columns of a row.
  int memory_columns() const {
    std::size_t steps = 0;
    for (const Row& group : groups_) steps += memory_.empty() ? 0 : memory_[group.workers.front()].size();
    if (steps <= limits_.memory_steps) return 0;
    return static_cast<int>(std::max<std::size_t>(limits_.memory_steps / groups_.size(), 16));
  }

  Json memory_steps(const MemoryCurve& curve, int columns) {
    Json list = Json::array();
    std::int64_t at = 0;
    int held = -1;
    const auto add = [&](std::int64_t time, const MemoryParts& parts) {
      Parts bytes{};
      for (std::size_t p = 0; p < kMemoryParts.size(); ++p) bytes[p] = (parts.*kMemoryParts[p].bytes).value;
      const int part = parts_.of(bytes);
      if (part == held) return;
      list.push_back(time - at);
      list.push_back(part);
      at = time;
      held = part;
    };
    if (columns == 0) {
      for (const MemoryStep& step : curve) add(ticks(step.time), step.held);
      return list;
    }
    const std::vector<MemoryParts> samples = sample(curve, result_.makespan, columns);
    for (std::size_t c = 0; c < samples.size(); ++c)
      add(std::llround(kTicks * static_cast<double>(c) / columns), samples[c]);
    return list;
  }

  const SimulationResult& result_;
  std::span<const MemoryCurve> memory_;
  const TimelineLimits limits_;
  const std::vector<TimelineRow> rows_;  ///< per worker
  const std::vector<Row> groups_;
  const Seconds shortest_;
  Table<OpType> types_;
  Table<Parts> parts_;
};

}  // namespace

Json timeline_data(const SimulationResult& result, std::span<const MemoryCurve> memory,
                   const TimelineLimits& limits) {
  return Encoder(result, memory, limits).data();
}

}  // namespace pp::plan
