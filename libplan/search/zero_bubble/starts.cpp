#include "libplan/search/zero_bubble/starts.h"

#include <algorithm>
#include <cmath>

#include "libplan/search/zero_bubble/greedy.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

Order by_rule(const std::vector<HandRule>& rules, const std::vector<Room>& rooms) {
  Order order;
  for (std::size_t s = 0; s < rooms.size(); ++s) order.push_back(apply(rules[s], rooms[s]));
  return order;
}

/// Windows that let forwards of `pace` seconds each fill `share` of the round trip. They do not grow along the
/// pipeline: a worker that wants more forwards than the one before holds would wait for ever.
std::vector<int> windows(const Pipeline& pipeline, const std::vector<Room>& rooms, double share, double pace) {
  const auto trips = round_trips(pipeline);
  std::vector<int> result;
  int before = pipeline.micro_batches;
  for (std::size_t s = 0; s < rooms.size(); ++s) {
    const double wanted = pace > 0 ? std::ceil(share * trips[s].front() / pace - 1e-9) : 0;
    before = std::min({before, rooms[s].front(), 1 + static_cast<int>(std::min(wanted, 1.0 * before))});
    result.push_back(before);
  }
  return result;
}

/// Seconds that the slowest worker spends on a micro-batch, on average.
double slowest(const Pipeline& pipeline) {
  double result = 0;
  for (const StageTimes& stage : pipeline.stages) {
    double sum = 0;
    for (const OpKind kind : {OpKind::forward, OpKind::input_gradient, OpKind::weight_gradient}) {
      for (const double seconds : stage.of(kind)) sum += seconds;
    }
    result = std::max(result, sum / pipeline.micro_batches);
  }
  return result;
}

}  // namespace

std::vector<NamedOrder> hand_written_orders(const std::vector<Room>& rooms) {
  const int workers = static_cast<int>(rooms.size());
  const int count = static_cast<int>(rooms.front().size());
  const std::vector<Room> unlimited(rooms.size(), Room(at(count), count));
  struct Kind {
    const char* name;
    int slope;  ///< window 1 + slope * (workers behind)
    int delay;  ///< W this many times the workers before
  };
  std::vector<NamedOrder> result;
  for (const auto& [name, slope, delay] :
       {Kind{"ZB-H2", 2, 2}, Kind{"ZB-H1", 1, 1}, Kind{"1F1B, split", 1, 0}}) {
    std::vector<HandRule> rules;
    for (int s = 0; s < workers; ++s) rules.push_back({1 + slope * (workers - 1 - s), delay * s});
    Order order = by_rule(rules, unlimited);
    bool admissible = true;
    for (std::size_t s = 0; s < rooms.size(); ++s) admissible &= is_valid(order[s], rooms[s]);
    if (admissible) result.push_back({name, std::move(order)});
  }
  return result;
}

std::vector<NamedOrder> starting_orders(const Pipeline& pipeline, const std::vector<Room>& rooms) {
  constexpr double kShares[] = {1.0 / 2, 1, 3.0 / 2, 2, 3};
  const double pace = slowest(pipeline);
  const int all = pipeline.micro_batches;
  std::vector<NamedOrder> result;
  for (const double share : kShares) {
    const std::vector<int> window = windows(pipeline, rooms, share, pace);
    for (const int delay : {0, 1, 2, all}) {  // W waits for this many micro-batches per worker before
      std::vector<HandRule> rules;
      std::vector<int> backlogs;
      for (int s = 0; s < pipeline.size(); ++s) {
        rules.push_back({window[at(s)], delay * s});
        backlogs.push_back(delay * s + (delay == all ? all : 0));
      }
      result.push_back({"rule", by_rule(rules, rooms)});
      for (const double fitting : {0.0, 0.5, 1.0}) {
        for (const bool inputs_first : {false, true}) {
          result.push_back(
              {"greedy", schedule_greedily(pipeline, rooms, {window, backlogs, fitting, inputs_first})});
        }
      }
    }
  }
  return result;
}

}  // namespace pp::plan
