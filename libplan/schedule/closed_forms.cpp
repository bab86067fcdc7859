#include "libplan/schedule/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libplan/schedule/generators.h"

namespace pp::plan {

namespace {

struct Numbers {
  int k;  ///< workers
  int m;  ///< micro-batches
  int v;  ///< stages per worker
};

Numbers numbers(const ScheduleRequest& request) {
  return {static_cast<int>(request.replicas.size()), request.micro_batches, chunks_of(request)};
}

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double largest(std::span<const double> values) { return *std::ranges::max_element(values); }

bool plain(const ScheduleRequest& request) {
  return std::ranges::all_of(request.replicas, [](int r) { return r == 1; }) &&
         request.in_flight_limits.empty() && request.recompute.empty() && request.group == 0 &&
         request.window != WindowRule::explicit_list;
}

/// Peak of worker r.
template <class Peak>
std::vector<double> peaks(const Numbers& n, Peak peak) {
  std::vector<double> result;
  for (int r = 0; r < n.k; ++r) result.push_back(peak(r));
  return result;
}

ClosedForm form(const Numbers& n, const ShareTimes& times, double makespan, std::vector<double> peak) {
  return {makespan, 1 - n.m * times.total() / makespan, std::move(peak)};
}

/// In whole micro-batches, of `window(worker)` that are allowed.
template <class Window>
std::vector<double> windows_peak(const Numbers& n, Window window) {
  return peaks(n, [&](int r) { return static_cast<double>(std::min(window(r), n.m)); });
}

double filled(const Numbers& n, const ShareTimes& times) { return (n.m + n.k - 1) * times.total(); }

/// Where the formulas of chunked and zero-bubble kinds were compared with their lists.
bool compared(const Numbers& n) { return n.k <= 10 && n.m <= 4 * n.k + 2; }

/// F = I = W.
bool equal_parts(const ShareTimes& times) {
  return times.input_gradient == times.forward && times.weight_gradient == times.forward;
}

std::vector<double> constant(const Numbers& n, double peak) {
  return peaks(n, [&](int) { return peak; });
}

/// What a stream runs in front of its first backward.
double prologue_operations(const ScheduleRequest& request) {
  const ScheduleRow& row = require_schedule(request.name);
  if (row.synchronous || !row.windowed) return 0;
  double operations = 0;
  const std::vector<int> windows = request_windows(request);
  for (std::size_t s = 0; s < windows.size(); ++s)
    operations += static_cast<double>(request.replicas[s]) * windows[s];
  return operations;
}

}  // namespace

std::optional<ClosedForm> gpipe_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  return form(n, times, filled(n, times), constant(n, n.m));
}

std::optional<ClosedForm> wide_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  return form(n, times, filled(n, times), windows_peak(n, [&](int r) { return 2 * (n.k - r) - 1; }));
}

std::optional<ClosedForm> one_forward_one_backward_form(const ScheduleRequest& request,
                                                        const ShareTimes& times) {
  if (request.window == WindowRule::wide && require_schedule(request.name).windowed)
    return wide_form(request, times);
  const Numbers n = numbers(request);
  return form(n, times, filled(n, times), windows_peak(n, [&](int r) { return n.k - r; }));
}

std::optional<ClosedForm> inference_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  return ClosedForm{(n.m + n.k - 1) * times.forward, (n.k - 1.0) / (n.m + n.k - 1), {}};
}

std::optional<ClosedForm> interleaved_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n)) return std::nullopt;
  return form(n, times, n.m * times.total() + (n.k - 1) * times.total() / n.v, peaks(n, [&](int r) {
                return double(std::min(n.m * n.v, (n.v - 1) * n.k + 2 * (n.k - 1 - r) + 1)) / n.v;
              }));
}

std::optional<ClosedForm> looped_bfs_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n)) return std::nullopt;
  const double makespan = n.m >= n.k ? n.m * times.total() + (n.k - 1) * times.total() / n.v
                                     : ((n.v - 1) * n.k + n.m + n.k - 1) * times.total() / n.v;
  return form(n, times, makespan, constant(n, n.m));
}

std::optional<ClosedForm> zb_h1_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n) || !equal_parts(times)) return std::nullopt;
  const double makespan = std::max(3.0 * n.m + n.k - 1, 2.0 * (n.m + n.k) - 1);
  return form(n, times, times.forward * makespan, constant(n, std::min(n.k, n.m)));
}

std::optional<ClosedForm> zb_h2_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n) || !equal_parts(times)) return std::nullopt;
  const double makespan = n.m < 2 * n.k - 2 ? std::ceil(2.5 * n.m) + 2 * (n.k - 1) : 3.0 * n.m + n.k - 1;
  return form(n, times, times.forward * makespan, constant(n, std::min(2 * n.k - 1, n.m)));
}

std::optional<ClosedForm> zb_v_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n) || !equal_parts(times)) return std::nullopt;
  const double makespan = std::max(3.0 * n.m + (n.k - 1) / 2.0, 2.0 * (n.m + n.k) - 1);
  return form(n, times, times.forward * makespan,
              n.m >= 2 * n.k - 1 ? constant(n, n.k) : std::vector<double>{});
}

std::optional<ClosedForm> dualpipe_v_form(const ScheduleRequest& request, const ShareTimes& times) {
  const Numbers n = numbers(request);
  if (!compared(n) || !equal_parts(times)) return std::nullopt;
  return form(n, times, times.forward * (3.0 * n.m + (n.k - 1) / 2.0), constant(n, n.k + 0.5));
}

std::optional<double> one_forward_one_backward_bubble(const ScheduleRequest& request, const ShareTimes& times,
                                                      double latency) {
  const Numbers n = numbers(request);
  if (n.m % n.k != 0) return std::nullopt;
  const double k = n.k;
  return (k - 1) * times.total() + (2 * (k - 1) * n.m / k + 2 * (k - 2)) * latency;
}

std::optional<double> interleaved_bubble(const ScheduleRequest& request, const ShareTimes& times,
                                         double latency) {
  const Numbers n = numbers(request);
  const double k = n.k, v = n.v;
  return (k - 1) * times.total() / v + (2 * v * k - 2) * latency;
}

std::optional<double> zb_h1_bubble(const ScheduleRequest& request, const ShareTimes& times, double latency) {
  const double k = numbers(request).k;
  return (k - 1) * (times.forward + times.input_gradient - times.weight_gradient) + 4 * (k - 1) * latency;
}

std::optional<double> zb_h2_bubble(const ScheduleRequest& request, const ShareTimes& times, double latency) {
  const double k = numbers(request).k;
  return (k - 1) * (times.forward + times.input_gradient - 2 * times.weight_gradient) + 2 * (k - 1) * latency;
}

std::optional<ClosedForm> closed_form(const ScheduleRequest& request, const ShareTimes& times) {
  const ScheduleRow* row = find_schedule(request.name);
  const bool known = row != nullptr && row->closed_form != nullptr && plain(request);
  return known ? row->closed_form(request, times) : std::nullopt;
}

std::optional<double> bubble_time(const ScheduleRequest& request, const ShareTimes& times, double latency) {
  const ScheduleRow* row = find_schedule(request.name);
  const bool known = row != nullptr && row->bubble_time != nullptr;
  return known ? row->bubble_time(request, times, latency) : std::nullopt;
}

double gpipe_makespan(std::span<const double> forward, std::span<const double> backward, int micro_batches) {
  return forward_time(forward, micro_batches) + forward_time(backward, micro_batches);
}

double forward_time(std::span<const double> stages, int micro_batches) {
  return sum(stages) + largest(stages) * (micro_batches - 1);
}

double partition_efficiency(std::span<const double> stages) {
  return sum(stages) / (static_cast<double>(stages.size()) * largest(stages));
}

int generation_ticks(int stages, int groups, int tokens, bool barrier) {
  const int pass = groups + stages - 1;
  return barrier ? tokens * pass : (tokens - 1) * std::max(groups, stages) + pass;
}

std::vector<std::vector<std::pair<int, int>>> clock_cycles(int micro_batches, int stages) {
  std::vector<std::vector<std::pair<int, int>>> cycles;
  for (int k = 0; k < micro_batches + stages - 1; ++k) {
    auto& cycle = cycles.emplace_back();
    for (int s = std::max(0, k + 1 - micro_batches); s < std::min(k + 1, stages); ++s)
      cycle.emplace_back(k - s, s);
  }
  return cycles;
}

bool is_clocked(const ScheduleRequest& request) {
  return require_schedule(request.name).rules == RuleSet::clocked;
}

std::int64_t clocked_steps(const ScheduleRequest& request) { return 6 * std::ssize(request.replicas); }

double operation_count(const ScheduleRequest& request, double length) {
  const ScheduleRow& row = require_schedule(request.name);
  const bool recomputes =
      std::ranges::any_of(request.recompute, [](Recompute r) { return r != Recompute::never; });
  double places = 0;  // each runs all micro-batches of its stages
  double workers = 0;
  for (const int replicas : request.replicas) {
    places += row.splits ? replicas : 1;
    workers += replicas;
  }
  const int kinds = 2 + int{row.split_backward} + int{recomputes} + int{is_clocked(request)};
  const double stages = static_cast<double>(request.replicas.size());
  if (is_clocked(request)) length = std::max(length + stages - 1, static_cast<double>(clocked_steps(request)));
  const double updates = row.synchronous ? 2 * workers : 0;
  return chunks_of(request) * (places * length * request.token_count * kinds + updates) +
         prologue_operations(request);
}

void check_size(const ScheduleRequest& request, double length) {
  if (operation_count(request, length) <= static_cast<double>(kOperationLimit)) return;
  refuse(request, "stages times micro-batches make more than " + std::to_string(kOperationLimit) +
                      " operations, the limit; use fewer stages or micro-batches");
}

}  // namespace pp::plan
