// The keys of the objects of profiles and plans, as their readers take them.
#include <array>

#include "libprofile/core/schema/document_schema.h"

namespace pp::detail {

namespace {

constexpr std::array kPlanningRows{
    // pp.profile
    ObjectRow{
        "profile",
        "context? {text}, model model, model_hash? text, device profiled_device, dtype "
        "'float32|float64|bfloat16', memory_format? 'contiguous|channels_last', autocast? 'bfloat16|float16', "
        "mode "
        "'in_place|isolated|imported|estimated', tensor_degree? size, trainer? trainer, micro_batch_sizes "
        "[size], "
        "layers [profiled_layer], loss? "
        "profiled_layer, whole_model [whole_model], optimizers [optimizer], operation_overhead? overhead, "
        "kernels? [kernel], estimated [text]"},
    ObjectRow{"profiled_device",
              "kind 'cpu|cuda', name text, cores_per_device count, devices_busy size, memory_bytes count, "
              "peak_flops_per_s? positive"},
    ObjectRow{
        "profiled_layer",
        "name text, parameter_count count, parameter_bytes count, trained_parameter_bytes? count, buffer_bytes "
        "count, forward_flops_per_sample number, points [point], piper? piper"},
    ObjectRow{
        "point",
        "micro_batch_size size, out_of_memory? flag, forward_s? time, backward_s? time, input_gradient_s? "
        "time, "
        "weight_gradient_s? time, first? pass_times, in_part? pass_times, alone? pass_times, output_bytes? "
        "count, saved_bytes? count, saved_input_bytes? count, workspace_bytes? count, waiting_bytes? count, "
        "transfer_s? number, gradient_transfer_s? number"},
    ObjectRow{"pass_times",
              "forward_s time|number, backward_s time|number, input_gradient_s time|number, weight_gradient_s "
              "time|number"},
    ObjectRow{"whole_model", "micro_batch_size size, forward_s time, backward_s time, peak_bytes count"},
    ObjectRow{
        "optimizer",
        "name text, state_bytes_per_parameter_byte number, update_s time, parameter_bytes count, new_version? "
        "update, parts? [update]"},
    ObjectRow{"update", "parameter_bytes size, update_s time"},
    ObjectRow{"overhead", "forward_s time, backward_s time"},
    ObjectRow{"kernel",
              "task 'product|product_with_bias|product_into|product_added|batched_product|convolution|"
              "convolution_input_gradient|convolution_weight_gradient', dtype "
              "'float32|float64|bfloat16|int64|uint8|bool', layout? 'nn|nt|tn|tt', sizes [count], kernel "
              "'mkl|onednn|convolution|product', seconds? {number}"},
    ObjectRow{
        "piper",
        "plain piper_costs, recompute? piper_costs, incoming [piper_edge], outgoing? [piper_edge], tensor? "
        "[piper_share]"},
    ObjectRow{
        "piper_share",
        "degree size, parameter_bytes count, plain piper_costs, recompute? piper_costs, incoming [piper_edge], "
        "outgoing? [piper_edge]"},
    ObjectRow{"piper_costs", "time_s number, saved_bytes count, fixed_bytes count"},
    ObjectRow{"piper_edge", "layer text, bytes count"},
    // pp.plan
    ObjectRow{
        "plan",
        "context? {text}, model model, profile_hash? text, cluster_hash? text, training training, "
        "schedule schedule, devices [device_place], levels? [level], stages [stage], tied? [tied], workers "
        "[worker], predicted? predicted, certificate? certificate, alternatives? [alternative], calibration? "
        "calibration, machines? [machine], tensor_degree? size, peak_flops_per_s? positive, throughput? "
        "object"},
    ObjectRow{
        "training",
        "mini_batch size, micro_batches size, dtype 'float32|float64|bfloat16', memory_format? "
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
              "tensor_degree? size"},
    ObjectRow{"calibration",
              "reports [text], least_factor number, largest_factor number, layers? [layer_correction], loss? "
              "layer_correction, updates? [update_correction], devices? [measured_speed]"},
    ObjectRow{"layer_correction",
              "layer? text, forward positive, backward positive, input_gradient positive, weight_gradient "
              "positive"},
    ObjectRow{"update_correction", "optimizer text, factor positive"},
    ObjectRow{"measured_speed", "device count, node text, speed positive"},
    ObjectRow{"machine",
              "devices size, cores_per_device count, tensor_degree? size, profile_hash text, step_s? number, "
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
