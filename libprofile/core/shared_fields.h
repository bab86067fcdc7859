// The field lists that several documents hold: times, types of weights, kernels, and the devices and levels of
// clusters, which stand in plans too.
#pragma once

#include "libprofile/core/cluster.h"
#include "libprofile/core/json_fields.h"
#include "libprofile/core/kernel_choice.h"
#include "libprofile/core/profile.h"

namespace pp {

/// A type that weights can have, which integers cannot; a document of its own.
extern const ValueType kWeightType, kModel;
/// What keys `products` and `autocast` go with.
void require_bfloat16(std::optional<NarrowType> products, DType dtype, ObjectReader& reader);
void require_float32(std::optional<Autocast> autocast, DType dtype, ObjectReader& reader);

void check_time(TimeStat& time, ObjectReader& reader);
void check_device(Device& device, ObjectReader& reader);
void check_level(Level& level, ObjectReader& reader);
void check_all_reduce(const MeasuredAllReduce& measured, ObjectReader& reader);

inline constexpr Object kTime{
    "time",
    key<&TimeStat::median>("median"),
    key<&TimeStat::low>("low"),
    key<&TimeStat::high>("high"),
    key<&TimeStat::samples>("samples"),
    check<check_time>(),
};

inline bool has_cores(const Device& device) { return device.kind == DeviceKind::cpu; }

inline constexpr Object kDevice{
    "device_place",
    key<&Device::id>("id"),
    key<&Device::kind>("kind"),
    defaulted<&Device::index>("index"),  // that of `id`
    defaulted<&Device::cores>("cores").written_if<has_cores>(),
    defaulted<&Device::node>("node"),
    defaulted<&Device::memory>("memory_bytes"),
    defaulted<&Device::speed>("speed", {1e-6, 1e6}),
    optional<&Device::model>("model"),
    optional<&Device::slot>("slot", {.min = 0, .max = kDeviceLimit - 1}),
    check<check_device>(),
};

inline constexpr Object kLinkSample{
    "link_sample",
    key<&LinkSample::size>("size_bytes"),
    key<&LinkSample::time>("time_s", kTime),
};

inline bool exceeds_caches(const MeasuredAllReduce& measured) { return measured.beyond.value > 0; }

inline constexpr Object kAllReduce{
    "level_all_reduce",
    key<&MeasuredAllReduce::bandwidth>("bandwidth_bytes_per_s", kPositive),
    key<&MeasuredAllReduce::latency>("latency_s"),
    key<&MeasuredAllReduce::fit_residual>("fit_residual"),
    optional<&MeasuredAllReduce::overlap>("overlap", kShare),
    check<check_all_reduce>(),
    defaulted<&MeasuredAllReduce::cached>("cached_bytes").written_if<exceeds_caches>(),
    optional<&MeasuredAllReduce::beyond>("bandwidth_beyond_bytes_per_s", kPositive),
    defaulted<&MeasuredAllReduce::samples>("samples", kLinkSample),
};

inline constexpr Object kLevel{
    "level",
    key<&Level::name>("name"),
    key<&Level::devices>("devices", {.min = 1}),
    key<&Level::bandwidth>("bandwidth_bytes_per_s", kPositive),
    defaulted<&Level::latency>("latency_s"),
    optional<&Level::cards>("cards", {.min = 1}),
    optional<&Level::message_cost>("message_cost_s"),
    optional<&Level::overlap>("overlap", kShare),
    optional<&Level::duplex>("duplex"),
    defaulted<&Level::fit_residual>("fit_residual"),
    defaulted<&Level::samples>("samples", kLinkSample),
    optional<&Level::all_reduce>("all_reduce", kAllReduce),
    check<check_level>(),
};

extern const ValueType kKernelSizes, kKernelSeconds;
void check_kernel(const KernelChoice& choice, ObjectReader& reader);
inline bool multiplies(const KernelChoice& choice) { return is_product(choice.key.task); }
inline bool is_measured(const KernelChoice& choice) { return choice.measured.has_value(); }

inline constexpr Object kKernel{
    "kernel",
    key<&KernelChoice::key, &KernelKey::task>("task"),
    key<&KernelChoice::key, &KernelKey::dtype>("dtype"),
    key<&KernelChoice::key, &KernelKey::layout>("layout").given<multiplies>(),
    key<&KernelChoice::key>("sizes", kKernelSizes),
    key<&KernelChoice::kernel>("kernel"),
    check<check_kernel>(),
    whole<KernelChoice>("seconds", kKernelSeconds).written_if<is_measured>(),
};
/// By key. Throws where a key has two entries.
void sort_kernels(std::vector<KernelChoice>& choices, ObjectReader& reader);

}  // namespace pp
