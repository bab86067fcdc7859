#include "libprofile/model/determinism.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace pp::model::detail {

namespace {

std::shared_mutex setting;

void set_warnings_only(bool only) { at::globalContext().setDeterministicAlgorithms(true, only); }

}  // namespace

Determinism::Determinism(bool required) {
  if (!at::globalContext().deterministicAlgorithms()) return;
  if (required) {
    required_ = std::shared_lock(setting);
    return;
  }
  alone_ = std::unique_lock(setting);
  set_warnings_only(true);
}

Determinism::~Determinism() {
  if (alone_) set_warnings_only(false);
}

}  // namespace pp::model::detail

namespace pp::model::aten {

namespace {

constexpr std::array<std::string_view, 50> kNames{
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "_ctc_loss",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool3d",
    "bincount",
    "cross_entropy_loss",
    "ctc_loss",
    "cumprod",
    "cumsum",
    "embedding_bag",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "grid_sampler",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "histc",
    "index_reduce",
    "logcumsumexp",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool2d",
    "max_unpool3d",
    "median",
    "nanmedian",
    "nll_loss2d",
    "nll_loss2d_forward",
    "nll_loss_nd",
    "put",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "scatter_reduce",
    "segment_reduce",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_trilinear3d",
};

/// `aten::upsample_bilinear2d.vec` -> `upsample_bilinear2d`
std::string_view base_name(std::string_view target) {
  const std::size_t space = target.find("::");
  if (space != std::string_view::npos) target.remove_prefix(space + 2);
  return target.substr(0, target.find('.'));
}

/// Padding with zeros has a deterministic kernel, the other modes have none.
bool pads_with_values(const AtenCall& call) {
  if (call.target != "aten::pad") return false;
  const auto mode = call.arguments.find("mode");
  if (mode == call.arguments.end()) return false;
  const auto* name = std::get_if<std::string>(&mode->second.value);
  return name != nullptr && *name != "constant";
}

}  // namespace

bool is_nondeterministic(std::string_view name) { return std::ranges::find(kNames, name) != kNames.end(); }

bool is_nondeterministic(const AtenCall& call) {
  const auto is_floating = [](const RowTensor& output) { return pp::is_floating(output.type.dtype); };
  if (std::ranges::none_of(call.outputs, is_floating)) return false;
  return is_nondeterministic(base_name(call.target)) || pads_with_values(call);
}

}  // namespace pp::model::aten
