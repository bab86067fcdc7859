// What a model asks of its data: shapes, types, counts, and the range of integers. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>

#include "libprofile/core/model/model_graph.h"
#include "librun/data/records.h"

namespace pp::run {

/// Classes that cross_entropy distinguishes: the size of the prediction's last dimension. 0 for other losses.
std::int64_t class_count(const ResolvedModel& model);

/// Throws pp::Error (data) with what stands where, what the model wants and the remedy. Shapes fit that differ
/// by dimensions of size 1 only, or that the model takes flat. Reads all integers whose range matters.
void check_table(const ResolvedModel& model, const SampleTable& table);

/// What the numbers of a floating input are multiplied by. `wanted`: what --scale says; else integers of up to
/// 32 bits are divided by the largest value of their type. Throws for wider ones.
double input_scale(const DataTensor& input, const Records& records, std::optional<double> wanted);

}  // namespace pp::run
