#include <algorithm>
#include <array>

#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace ops {
namespace {

constexpr std::array kTable{
    Row{"adaptive_avg_pool2d", adaptive_avg_pool2d},
    Row{"add", add},
    Row{"avg_pool2d", avg_pool2d},
    Row{"batch_norm2d", batch_norm2d, initialise_norm, WeightGradient::with_input},
    Row{"concat", concat},
    Row{"conv2d", conv2d, initialise_by_fan_in},
    Row{"dropout", dropout},
    Row{"embedding", embedding, initialise_normal},
    Row{"flatten", flatten},
    Row{"gelu", gelu},
    Row{"layer_norm", layer_norm, initialise_norm, WeightGradient::with_input},
    Row{"linear", linear, initialise_by_fan_in},
    Row{"max_pool2d", max_pool2d},
    Row{"multi_head_attention", multi_head_attention, initialise_attention},
    Row{"position_embedding", position_embedding, initialise_normal},
    Row{"relu", relu},
    Row{"softmax", softmax},
    Row{"tanh", tanh},
};

}  // namespace

std::span<const Row> table() { return kTable; }

const Row* find(std::string_view name) {
  const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const Row& r) { return r.name == name; });
  return row == kTable.end() ? nullptr : &*row;
}

}  // namespace ops

Forward find_forward(std::string_view op) {
  const ops::Row* row = ops::find(op);
  return row == nullptr ? nullptr : row->forward;
}

std::vector<std::string_view> forward_names() {
  std::vector<std::string_view> names;
  for (const ops::Row& row : ops::table()) names.push_back(row.name);
  return names;
}

}  // namespace pp::model
