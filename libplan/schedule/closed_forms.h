// What schedules take by formula: time, for tests and to set beside a simulation (in any unit, the same for
// all), and number of operations, with the limits on it, before a schedule is made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// Of a worker's whole share for one micro-batch; a stage of v on a worker takes 1/v of it.
struct ShareTimes {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double backward() const { return input_gradient + weight_gradient; }
  double total() const { return forward + backward(); }
};

/// One isolated step on equal workers, without transfer times.
struct ClosedForm {
  double makespan = 0;
  double bubble_fraction = 0;          ///< 1 - busy/(workers*makespan)
  std::vector<double> peak_in_flight;  ///< per worker, in whole shares
};

/// Nothing for schedules without a formula, nor for these numbers: replicas, windows, limits, groups,
/// recomputation; zero-bubble kinds with unequal F, I, W; chunked and zero-bubble kinds beyond K <= 10, M <=
/// 4K+2; chimera beyond M = K (published counts are of slots, these are times).
std::optional<ClosedForm> closed_form(const ScheduleRequest& request, const ShareTimes& times = {});

// Of one schedule each; their rows name them, closed_form() and bubble_time() have checked the request.
FormOf gpipe_form, one_forward_one_backward_form, wide_form, inference_form, interleaved_form, looped_bfs_form,
    zb_h1_form, zb_h2_form, zb_v_form, dualpipe_v_form;
BubbleOf one_forward_one_backward_bubble, interleaved_bubble, zb_h1_bubble, zb_h2_bubble;

/// GPipe in either order with unequal stages and no transfer times, exactly: sum F + (M-1) max F + sum B +
/// (M-1) max B.
double gpipe_makespan(std::span<const double> forward, std::span<const double> backward, int micro_batches);

/// Lost time of the busiest worker beside its own work M*T, with latency c between neighbours: bubble rate =
/// x/(x + M*T) (Qi et al., ICLR'24). Of 1f1b where K divides M; interleaved is what its lists give when
/// simulated, (2vK-2)c, K*c more than the authors' formula. Nothing for schedules without a formula.
std::optional<double> bubble_time(const ScheduleRequest& request, const ShareTimes& times, double latency);

/// The VGG16 pipeline report (Shankar). `stages`: compute of each stage plus the transfer into it, per
/// micro-batch. time(m) = sum S_i + S_max (m-1): m micro-batches forward.
double forward_time(std::span<const double> stages, int micro_batches);
/// sum S_i / (k S_max), 0..1. The report's sum has one term too many; all its printed cells but two follow this
/// one.
double partition_efficiency(std::span<const double> stages);

/// Token generation, in ticks of one stage and one group: T (M+K-1) with a barrier per token, else (T-1)
/// max(M,K) + M+K-1.
int generation_ticks(int stages, int groups, int tokens, bool barrier);

/// torchgpipe's clock cycles: per cycle the (micro-batch, stage) pairs that run forward together.
std::vector<std::vector<std::pair<int, int>>> clock_cycles(int micro_batches, int stages);

/// Whether its stages work in the steps of one clock, on an endless stream of frames.
bool is_clocked(const ScheduleRequest& request);

/// Steps in which a clocked schedule does all that it does in every third of them: the first backward of the
/// first stage comes after twice the stages.
std::int64_t clocked_steps(const ScheduleRequest& request);

/// Operations of all workers over `length` micro-batches; what ends a synchronous step counts twice per stage
/// and worker.
double operation_count(const ScheduleRequest& request, double length);

/// Throws pp::Error (usage) for more than kOperationLimit.
void check_size(const ScheduleRequest& request, double length);

/// Most operations of one set of programs. Simulating them takes a few hundred bytes each.
inline constexpr std::int64_t kOperationLimit = 2'000'000;

/// Most workers that are simulated.
inline constexpr std::int64_t kWorkerLimit = 20'000;

/// Most micro-batches of a step.
inline constexpr int kMicroBatchLimit = 1'000'000;

}  // namespace pp::plan
