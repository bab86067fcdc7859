#include "libprofile/core/blocks.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

constexpr std::size_t kMostDigits = 6;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

TimeStat longer(const TimeStat& time, Seconds by) {
  return {time.median + by, time.low + by, time.high + by, time.samples};
}

/// What a block reads from layers outside, at the profiled size `point`. Members of a tensor group hold what
/// they hand on a part of: the whole of it without sequence parallelism.
Bytes inputs_of(const Profile& profile, const ResolvedModel& model, const Block& block, std::size_t point) {
  std::set<int> read;
  for (int l = block.begin; l < block.end; ++l) {
    for (const TensorSource& source : model.layers[at(l)].sources)
      if (source.kind == TensorSource::Kind::layer && source.index < block.begin) read.insert(source.index);
  }
  const auto said = profile.context.find("sequence_parallel");
  const bool whole = said != profile.context.end() && said->second == "false";
  Bytes bytes;
  for (const int layer : read) bytes += profile.layers[at(layer)].points[point].output;
  return whole ? bytes * profile.tensor_degree : bytes;
}

void checkpoint(Profile& profile, const ResolvedModel& model, const Block& block, std::size_t p) {
  Bytes saved;
  for (int l = block.begin; l < block.end; ++l) saved += profile.layers[at(l)].points[p].saved;
  // The first layer that has a backward keeps them, and makes what the layers in front of it do as well.
  Bytes inputs = inputs_of(profile, model, block, p);
  Seconds forward{};
  for (int l = block.begin; l < block.end; ++l) {
    LayerPoint& point = profile.layers[at(l)].points[p];
    forward += point.forward.median;
    if (!model.layers[at(l)].backward) continue;
    if (point.input_gradient) point.input_gradient = longer(*point.input_gradient, forward);
    point.backward = longer(point.backward, forward);
    point.workspace += saved;
    point.saved = point.saved_input = std::exchange(inputs, Bytes(0));
    forward = {};
  }
}

}  // namespace

int block_number(std::string_view layer) {
  for (std::size_t end = layer.find('.'); end != std::string_view::npos; end = layer.find('.')) {
    const std::string_view part = layer.substr(0, end);
    const auto digits =
        static_cast<std::size_t>(std::find_if_not(part.rbegin(), part.rend(), is_digit) - part.rbegin());
    if (digits > 0 && digits <= kMostDigits) return std::stoi(std::string(part.substr(part.size() - digits)));
    layer.remove_prefix(end + 1);
  }
  return -1;
}

std::vector<Block> blocks_of(const ModelGraph& model) {
  std::vector<Block> blocks;
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const std::string& name = model.layers[at(l)].name;
    int number = block_number(name);
    // An imported block's own operations have its name: `h.0`, `h.0/2` behind `h.0.norm`.
    const std::string inside = name.substr(0, name.find('/')) + ".";
    if (number < 0 && l > 0 && model.layers[at(l - 1)].name.starts_with(inside)) number = block_number(inside);
    if (number < 0) continue;
    if (!blocks.empty() && blocks.back().number == number && blocks.back().end == l) {
      blocks.back().end = l + 1;
    } else {
      blocks.push_back({number, l, l + 1});
    }
  }
  return blocks;
}

std::vector<Block> prediction_blocks(const ModelGraph& model) {
  std::vector<Block> blocks = blocks_of(model);
  const auto decodes = [&](const Block& block) {
    const OpRow* row = find_op(model.layers[at(block.begin)].op);
    return row == nullptr || row->tensor != TensorSplit::table;
  };
  blocks.erase(blocks.begin(), std::find_if(blocks.rbegin(), blocks.rend(), decodes).base());
  return blocks;
}

Profile with_checkpoints(Profile profile) {
  std::vector<int> all(blocks_of(profile.model).size());
  std::iota(all.begin(), all.end(), 0);
  return with_checkpoints(std::move(profile), "blocks", all);
}

Profile with_checkpoints(Profile profile, const std::string& said, std::span<const int> chosen) {
  for (Profile& other : profile.others) other = with_checkpoints(std::move(other), said, chosen);
  if (!profile.context.emplace("checkpoint", said).second) return profile;
  const std::vector<Block> blocks = blocks_of(profile.model);
  if (blocks.empty()) {
    throw Error(ErrorKind::usage, "the layers of " + profile.model.name +
                                      " are in no numbered blocks, such as block3.norm, that could be "
                                      "checkpointed; leave out --checkpoint, or plan with --recompute never");
  }
  const ResolvedModel model = resolve(profile.model);
  for (const int block : chosen)
    for (std::size_t p = 0; p < profile.micro_batch_sizes.size(); ++p)
      checkpoint(profile, model, blocks[at(block)], p);
  return profile;
}

}  // namespace pp
