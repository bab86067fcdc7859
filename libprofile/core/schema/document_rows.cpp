// The keys of the objects of plans, as their reader takes them.
#include <array>

#include "libprofile/core/schema/document_schema.h"

namespace pp::detail {

namespace {

constexpr std::array kPlanningRows{
    // pp.plan
    ObjectRow{
        "plan",
        "context? {text}, model model, profile_hash? text, cluster_hash? text, training training, "
        "schedule schedule, devices [device_place], levels? [level], stages [stage], tied? [tied], workers "
        "[worker], predicted? predicted, certificate? certificate, alternatives? [alternative], calibration? "
        "calibration, machines? [machine], tensor_degree? size, context_degree? size, expert_degree? size, "
        "peak_flops_per_s? "
        "positive, throughput? "
        "object"},
    ObjectRow{
        "training",
        "mini_batch size, micro_batches size, dtype 'float32|float64|bfloat16', products? "
        "'float8|mxfloat8|float4', memory_format? "
        "'contiguous|channels_last', autocast? 'bfloat16|float16', optimizer 'sgd|adam|adamw|rmsprop|adagrad', "
        "precision? "
        "'plain|autocast|mixed', shard? 'none|optimizer', kernels? [kernel], replica_routing? 'round_robin'"},
    ObjectRow{
        "schedule",
        "name text, weight_policy text, recompute? 'never|except_last|always|per_stage', chunks_per_worker? "
        "size"},
    ObjectRow{"stage", "layers [text], workers [count], recompute? [text]"},
    ObjectRow{"tied", "parameter text, layers [text], stages [count]"},
    ObjectRow{"worker", "id count, device count, rank? count, program? text, stream? stream"},
    ObjectRow{"stream", "prologue text, body text, period size"},
    ObjectRow{"certificate", "objective_s number, lower_bound_s number, gap number, search text"},
    ObjectRow{"alternative",
              "schedule text, stages text, replicas text, micro_batches size, step_s number, peak_bytes count, "
              "recompute? text, why_not text, expected_step_s? number, cores_per_device? size, "
              "tensor_degree? size, context_degree? size, expert_degree? size"},
    ObjectRow{"calibration",
              "reports [text], least_factor number, largest_factor number, layers? [layer_correction], loss? "
              "layer_correction, updates? [update_correction], devices? [measured_speed]"},
    ObjectRow{"layer_correction",
              "layer? text, forward positive, backward positive, input_gradient positive, weight_gradient "
              "positive"},
    ObjectRow{"update_correction", "optimizer text, factor positive"},
    ObjectRow{"measured_speed", "device count, node text, speed positive"},
    ObjectRow{
        "machine",
        "devices size, cores_per_device count, tensor_degree? size, context_degree? size, expert_degree? size, "
        "profile_hash text, step_s? number, "
        "plan? text, "
        "verdict? text"},
    ObjectRow{
        "predicted",
        "step_s number, expected_step_s? number, makespan_s number, samples_per_s number, bubble_fraction "
        "share, "
        "workers [predicted_worker], links [predicted_link], stages [predicted_stage], edges [predicted_edge], "
        "tied_all_reduce_s? [number], micro_batch_scale [positive], micro_batch_bytes? [positive], "
        "all_reduce_overlap share, swap_bandwidth? number, swap_overlap? share"},
    ObjectRow{"predicted_worker", "busy_s number, peak_bytes count, parts predicted_parts"},
    ObjectRow{"predicted_parts",
              "weights count, gradients count, optimizer count, versions count, saved count, boundary count, "
              "workspace "
              "count"},
    ObjectRow{"predicted_link", "from count, to count, bytes_per_step count"},
    ObjectRow{"predicted_edge",
              "from count, to count, activation_bytes count, gradient_bytes count, activation_tensors count, "
              "gradient_tensors count"},
    ObjectRow{
        "predicted_stage",
        "forward_s number, backward_s number, input_gradient_s number, weight_gradient_s number, recompute_s "
        "number, first? first_times, all_reduce_s number, hideable_s? number, load_s? number, load_state_s? "
        "number, evict_s? number, update_s number, weights_bytes count, frozen_bytes? count, gradients_bytes "
        "count, optimizer_bytes count, saved_bytes count, again_bytes? count, again_split_bytes? count, "
        "input_bytes count, waiting_bytes? count, boundary_bytes count, workspace_bytes count, versions size, "
        "spread? spread"},
    ObjectRow{"first_times", "forward_s number, backward_s number, weight_gradient_s number"},
    ObjectRow{
        "spread",
        "forward spread_of, backward spread_of, input_gradient spread_of, weight_gradient spread_of, recompute "
        "spread_of, update spread_of"},
    ObjectRow{"spread_of", "below_s number, above_s number, shift_s signed"},
};

}  // namespace

std::span<const ObjectRow> planning_rows() { return kPlanningRows; }

}  // namespace pp::detail
