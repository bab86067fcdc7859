#include "libplan/schedule/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pp::plan {
namespace {

struct Numbers {
  int k;  ///< workers
  int m;  ///< micro-batches
  int v;  ///< stages per worker
};

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

std::optional<ClosedForm> one_stage_form(const std::string& name, const Numbers& n, const ShareTimes& times) {
  const double filled = (n.m + n.k - 1) * times.total();
  const auto capped = [&](auto window) {
    return peaks(n, [&](int r) { return static_cast<double>(std::min(window(r), n.m)); });
  };
  if (name == "gpipe" || name == "gpipe-reverse" || name == "naive")
    return form(n, times, filled, capped([&](int) { return n.m; }));
  if (name == "1f1b" || name == "dapple-pa" || name == "hybrid")
    return form(n, times, filled, capped([&](int r) { return n.k - r; }));
  if (name == "dapple-pb") return form(n, times, filled, capped([&](int r) { return 2 * (n.k - r) - 1; }));
  if (name == "inference") {
    const double makespan = (n.m + n.k - 1) * times.forward;
    return ClosedForm{makespan, (n.k - 1.0) / (n.m + n.k - 1), {}};
  }
  return std::nullopt;
}

std::optional<ClosedForm> looped_form(const std::string& name, const Numbers& n, const ShareTimes& times) {
  const double whole = n.m * times.total() + (n.k - 1) * times.total() / n.v;
  if (name == "interleaved") {
    return form(n, times, whole, peaks(n, [&](int r) {
                  return double(std::min(n.m * n.v, (n.v - 1) * n.k + 2 * (n.k - 1 - r) + 1)) / n.v;
                }));
  }
  if (name != "looped-bfs") return std::nullopt;
  const double makespan = n.m >= n.k ? whole : ((n.v - 1) * n.k + n.m + n.k - 1) * times.total() / n.v;
  return form(n, times, makespan, peaks(n, [&](int) { return double(n.m); }));
}

/// F = I = W = t.
std::optional<ClosedForm> zero_bubble_form(const std::string& name, const Numbers& n, const ShareTimes& times) {
  const double t = times.forward;
  if (times.input_gradient != t || times.weight_gradient != t) return std::nullopt;
  const auto constant = [&](double peak) { return peaks(n, [&](int) { return peak; }); };
  const double work = 3.0 * n.m;
  if (name == "zb-h1") {
    return form(n, times, t * std::max(work + n.k - 1, 2.0 * (n.m + n.k) - 1),
                peaks(n, [&](int) { return double(std::min(n.k, n.m)); }));
  }
  if (name == "zb-h2") {
    const double makespan = n.m < 2 * n.k - 2 ? std::ceil(2.5 * n.m) + 2 * (n.k - 1) : work + n.k - 1;
    return form(n, times, t * makespan, constant(std::min(2 * n.k - 1, n.m)));
  }
  if (name == "zb-v") {
    const double makespan = std::max(work + (n.k - 1) / 2.0, 2.0 * (n.m + n.k) - 1);
    return form(n, times, t * makespan, n.m >= 2 * n.k - 1 ? constant(n.k) : std::vector<double>{});
  }
  if (name == "dualpipe-v") return form(n, times, t * (work + (n.k - 1) / 2.0), constant(n.k + 0.5));
  return std::nullopt;
}

}  // namespace

std::optional<ClosedForm> closed_form(const ScheduleRequest& request, const ShareTimes& times) {
  if (!plain(request)) return std::nullopt;
  const Numbers n{static_cast<int>(request.replicas.size()), request.micro_batches, chunks_of(request)};
  if (request.window == WindowRule::wide && request.name == "1f1b")
    return one_stage_form("dapple-pb", n, times);
  if (auto found = one_stage_form(request.name, n, times)) return found;
  if (n.k > 10 || n.m > 4 * n.k + 2) return std::nullopt;
  if (auto found = looped_form(request.name, n, times)) return found;
  return zero_bubble_form(request.name, n, times);
}

double gpipe_makespan(std::span<const double> forward, std::span<const double> backward, int micro_batches) {
  return forward_time(forward, micro_batches) + forward_time(backward, micro_batches);
}

std::optional<double> bubble_time(const ScheduleRequest& request, const ShareTimes& times, double latency) {
  const double k = static_cast<double>(request.replicas.size());
  const double fi = times.forward + times.input_gradient;
  const double w = times.weight_gradient;
  if (request.name == "1f1b" && request.micro_batches % static_cast<int>(request.replicas.size()) == 0)
    return (k - 1) * times.total() + (2 * (k - 1) * request.micro_batches / k + 2 * (k - 2)) * latency;
  if (request.name == "zb-h1") return (k - 1) * (fi - w) + 4 * (k - 1) * latency;
  if (request.name == "zb-h2") return (k - 1) * (fi - 2 * w) + 2 * (k - 1) * latency;
  if (request.name == "interleaved") {
    const double v = chunks_of(request);
    return (k - 1) * times.total() / v + (2 * v * k - 2) * latency;
  }
  return std::nullopt;
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

}  // namespace pp::plan
