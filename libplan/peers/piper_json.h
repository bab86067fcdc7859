// Reader of Piper's JSON graphs: layers in several variants, edges in bytes.
#pragma once

#include <string_view>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Published files exist in both, and do not say which.
enum class TimeUnit { s, ms };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::TimeUnit> {
  static constexpr std::array table{std::pair{plan::TimeUnit::s, "s"sv}, std::pair{plan::TimeUnit::ms, "ms"sv}};
};
}  // namespace pp

namespace pp::plan {

/// Each node's variants at each tensor degree: the fastest is the plain one, of the others the one with the
/// least `memoryUsageA` its recomputed form; `LayerProfile::piper` keeps both and, per edge,
/// `communicationCost` plus the `syncTimeFw` of the reader at its end and the `syncTimeBw` of the producer at
/// its own, all bytes. For other cost models the degree is 1: one third of `timePerSample` is forward,
/// `memoryUsageA` is saved, the largest edge of a producer its output. What Piper calls a sample is one
/// micro-batch. `maxMemoryPerDevice` is the device's memory; `bandwidth` and `mbsInBatch` go into the context.
/// Throws pp::Error (data) with the JSON pointer: duplicate ids, unknown nodes, cycles, negative numbers, no
/// variant at degree 1.
Profile import_piper(std::string_view text, std::string_view name, int batch_size, TimeUnit unit);

}  // namespace pp::plan
