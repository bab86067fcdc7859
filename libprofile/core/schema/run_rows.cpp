// The keys of the objects that pp-run writes: reports, checkpoints, inferences, metrics.
#include <array>

#include "libprofile/core/schema/document_schema.h"

namespace pp::detail {
namespace {

constexpr std::array kRunRows{
    // pp.report
    ObjectRow{
        "report",
        "context? {text}, plan_hash text, plan plan, settings {flag|signed|text}, exit_reason text, seed "
        "count, "
        "steps count, skipped_steps count, step_s number, samples_per_s number, bubble_fraction share, epochs "
        "[epoch], evaluations? [evaluation], best? best, workers [run_worker], op_times [op_time], comparisons "
        "[comparison], step_losses "
        "[signed|null], history step_history, last_steps last_steps, resumed_from? resumed_from, "
        "lost_attempts? "
        "[lost_attempt], slow_devices? [slow_device], deviation? deviation, checkpoints? written_checkpoints, "
        "frames? frames, "
        "replicas? replicas"},
    ObjectRow{
        "epoch",
        "epoch count, train_loss signed|null, test_loss? signed|null, test_accuracy? share, samples_per_s "
        "number, last_step count, elapsed_s number, evaluation_s number"},
    ObjectRow{"evaluation",
              "epoch count, step count, test_loss? signed|null, test_accuracy? share, elapsed_s number, "
              "evaluation_s number"},
    ObjectRow{"best", "step count, test_loss signed, evaluations_since count, checkpoint? text"},
    ObjectRow{"run_worker",
              "id count, busy_s number, bubble_fraction share, peak_bytes count, parts run_parts, "
              "peak_in_flight count, peak_versions count, sent_bytes_per_step count, swaps_in? swaps, "
              "swaps_out? swaps, graphs? graphs"},
    ObjectRow{"run_parts", "weights count, gradients count, optimizer count, versions count, saved count"},
    ObjectRow{"swaps", "count count, bytes count, time_s number"},
    ObjectRow{"graphs", "recorded count, replayed count, bytes count"},
    ObjectRow{"op_time",
              "kind 'F|B|I|W|R|AR|ARg|U|L|E', stage count, count count, predicted_s number, median_s number, "
              "replica_medians_s? [number]"},
    ObjectRow{"comparison", "name text, predicted signed, measured signed, ratio signed"},
    ObjectRow{"step_history", "steps_per_sample size, steps count, step_s [number], peak_bytes [[count]]"},
    ObjectRow{"last_steps",
              "first_step count, steps count, ops [timed_op], messages [timed_message], samples? [count]"},
    ObjectRow{"timed_op",
              "worker count, op text, start_s number, end_s number, peak_bytes count, held_bytes count"},
    ObjectRow{"timed_message",
              "from count, to count, producer text, bytes count, start_s number, end_s number"},
    ObjectRow{"resumed_from", "checkpoint text, step count"},
    ObjectRow{
        "lost_attempt",
        "how text, first_step count, steps_done count, seconds number, checkpoint_step? count, plan? text, "
        "hosts? text, to_next_s? number"},
    ObjectRow{"slow_device", "worker count, first_step count, last_step? count, factor positive"},
    ObjectRow{"deviation",
              "operations_s? signed, above_medians_s number, operation_count count, interrupted count, "
              "mean_excess_s signed, first_steps "
              "count, first_excess_s signed, partial_steps count, partial_step_s number"},
    ObjectRow{"written_checkpoints",
              "written count, size_bytes count, pause_s number, write_s number, cost_s? number, "
              "interval_s? "
              "number"},
    ObjectRow{"frames", "period_s number, latency_s number, delay count"},
    ObjectRow{
        "replicas",
        "mean_staleness number, largest_staleness count, largest_lead count, pushed_bytes_per_step count, "
        "fetched_bytes_per_step count"},
    // pp.checkpoint; version 1 has no owners and may lack epoch_samples and hash
    ObjectRow{"checkpoint",
              "position position, training training_identity, seed count, micro_batches size, plan_hash text, "
              "kernels? text, settings {flag|signed|text}, parts [checkpoint_part], hash? text"},
    ObjectRow{"position",
              "step count, epoch count, epoch_steps count, epoch_loss signed, epoch_samples? number, "
              "loss_scale? loss_scale, evaluated? evaluated"},
    ObjectRow{"evaluated", "step count, best_loss signed, best_step count, since_best count"},
    ObjectRow{"loss_scale", "factor positive, finite_steps count"},
    ObjectRow{"training_identity",
              "model_hash text, dtype text, optimizer text, samples size, mini_batch size, steps_per_epoch "
              "size"},
    ObjectRow{"checkpoint_part", "file text, bytes count, hash text, owner? count"},
    // pp.inference
    ObjectRow{
        "inference",
        "context? {text}, plan_hash text, settings {flag|signed|text}, seed count, exit_reason text, samples "
        "count, micro_batch size, passes count, elapsed_s number, samples_per_s? number, tokens_per_s? number, "
        "latency_s latency, workers [inference_worker], forwards [inference_forward], tokens? count"},
    ObjectRow{"latency", "median number, p95 number, largest number"},
    ObjectRow{"inference_worker", "id count, busy_s number, idle_fraction share, peak_bytes count"},
    ObjectRow{"inference_forward", "stage count, count count, predicted_s number, median_s number"},
    // pp.metrics: the line that begins a run, of a step, of an evaluation or the end of an epoch
    ObjectRow{"metrics",
              "plan_hash text, seed count, first_step count, steps count, settings {flag|signed|text}"},
    ObjectRow{"metrics_step",
              "step count, epoch count, loss signed|null, learning_rate number, samples count, samples_per_s "
              "number, elapsed_s number, bubble_fraction share, peak_bytes count, gradient_norm? number, "
              "loss_scale? positive"},
    ObjectRow{"metrics_evaluation",
              "evaluation count, step count, elapsed_s number, evaluation_s number, train_loss? signed|null, "
              "test_loss? signed|null, test_accuracy? share"},
};

}  // namespace

std::span<const ObjectRow> run_rows() { return kRunRows; }

}  // namespace pp::detail
