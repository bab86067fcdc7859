#include "librun/infer/generation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer/sequences.h"

namespace pp::run {

namespace {

// One that it works on and one that waits for it, so that a long prompt elsewhere leaves it something to do.
constexpr int kGroupsPerWorker = 2;

/// Uniform in [0, 1), the same for every plan and order.
double draw_of(std::uint64_t seed, std::int64_t sequence, std::int64_t position) {
  return static_cast<double>(model::mix({seed, sequence, position}, 0) >> 11) * 0x1p-53;
}

class SequenceData final : public Dataset {
 public:
  SequenceData(const Sequences& sequences, std::size_t input, std::unique_ptr<const Dataset> others)
      : sequences_(sequences), input_(static_cast<int>(input)), others_(std::move(others)) {}

  const std::string& source() const override { return others_->source(); }
  std::int64_t samples() const override { return sequences_.count(); }
  bool in_memory() const override { return others_->in_memory(); }
  bool fixed() const override { return false; }
  at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples,
                  bool pinned) const override {
    const bool grows = source.kind == TensorSource::Kind::input && source.index == input_;
    return grows ? sequences_.rows(samples) : others_->rows(source, samples, pinned);
  }

 private:
  const Sequences& sequences_;
  int input_;
  std::unique_ptr<const Dataset> others_;
};

}  // namespace

Sequences::Sequences(const SequencePlace& place, const GenerationOptions& options, std::int64_t samples,
                     const at::Tensor& prompts)
    : place_(place), options_(options), states_(static_cast<std::size_t>(samples)) {
  const std::int64_t prompt = this->prompt();
  const std::int64_t rest = options.end_token.value_or(options.pad_token.value_or(0));
  tokens_ = at::full({samples, prompt + options.new_tokens}, rest, at::kLong);
  if (prompts.defined()) {
    tokens_.narrow(1, 0, prompt).copy_(prompts.reshape({samples, prompt}));
  } else {
    tokens_.select(1, 0).fill_(*options.start_token);
  }
  const auto values = std::as_const(tokens_).accessor<const std::int64_t, 2>();
  for (std::int64_t s = 0; s < samples; ++s) {
    State& state = states_[static_cast<std::size_t>(s)];
    state.length = prompt;
    while (prompts.defined() && state.length > 0 && values[s][state.length - 1] == options.pad_token)
      --state.length;
    tokens_[s].narrow(0, state.length, tokens_.size(1) - state.length).fill_(rest);
    if (state.length > 0) continue;
    throw Error(ErrorKind::data, "sample " + std::to_string(s) + ": its prompt has no token but --pad-token " +
                                     std::to_string(*options.pad_token) + "; give at least one");
  }
}

at::Tensor Sequences::rows(std::span<const std::int64_t> samples) const {
  const std::int64_t positions = state(samples.front()).positions;
  const std::int64_t width = positions > 0 ? positions : place_.length;
  at::Tensor rows = at::zeros({static_cast<std::int64_t>(samples.size()), width}, at::kLong);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const State& of = state(samples[i]);
    const std::int64_t count = std::min(of.length - of.first, width);
    rows[static_cast<std::int64_t>(i)]
        .narrow(0, 0, count)
        .copy_(tokens_[samples[i]].narrow(0, of.first, count));
  }
  return rows;
}

model::Piece Sequences::begin(std::span<const std::int64_t> samples, std::int64_t positions) {
  model::Piece piece{.first = {}, .capacity = std::min(tokens_.size(1), place_.length)};
  for (const std::int64_t sample : samples) {
    State& of = states_[static_cast<std::size_t>(sample)];
    of.positions = positions;
    piece.first.push_back(of.first);
  }
  return piece;
}

model::Piece Sequences::begin_prompt(std::span<const std::int64_t> samples) { return begin(samples, prompt()); }

// Of one that has ended the last position that the model has, once more.
model::Piece Sequences::begin_last(std::span<const std::int64_t> samples) {
  for (const std::int64_t sample : samples)
    states_[static_cast<std::size_t>(sample)].first = std::min(last(sample), place_.length - 1);
  return begin(samples, 1);
}

void Sequences::append(std::int64_t sample, std::int64_t token) {
  State& state = states_[static_cast<std::size_t>(sample)];
  tokens_.mutable_data_ptr<std::int64_t>()[sample * tokens_.size(1) + state.length++] = token;
  state.ended = ++state.made == options_.new_tokens || token == options_.end_token;
}

at::Tensor Sequences::lengths() const {
  at::Tensor lengths = at::empty({count()}, at::kLong);
  for (std::int64_t s = 0; s < count(); ++s) lengths.mutable_data_ptr<std::int64_t>()[s] = state(s).length;
  return lengths;
}

Generation::Generation(const std::filesystem::path& path, std::string name, Sequences sequences,
                       const SequencePlace& place, const InferOptions& options, int rows, By by)
    : file_(path),
      name_(std::move(name)),
      sequences_(std::move(sequences)),
      place_(place),
      options_(*options.generation),
      seed_(options.seed),
      by_(by) {
  for (std::int64_t first = 0; first < sequences_.count(); first += rows) {
    const std::int64_t left = sequences_.count() - first;
    groups_.push_back({.first = first, .rows = static_cast<int>(std::min<std::int64_t>(rows, left))});
  }
  chunks_.resize(static_cast<std::size_t>(shape().count) / kChunk + 1);
}

std::unique_ptr<const Dataset> Generation::reading(std::unique_ptr<const Dataset> data) const {
  return std::make_unique<SequenceData>(sequences_, place_.input, std::move(data));
}

// Every pass gives at least one sequence of its group a token.
EpochShape Generation::shape() const {
  EpochShape shape{.mini_batch = groups_.front().rows};
  shape.count = std::ssize(groups_) * options_.new_tokens;
  shape.samples = shape.count * shape.mini_batch;
  return shape;
}

PassPiece& Generation::pass_of(Step pass) const {
  return chunks_[static_cast<std::size_t>(pass) / kChunk]->passes[static_cast<std::size_t>(pass) % kChunk];
}

std::int64_t Generation::all() const { return sequences_.count() * options_.new_tokens; }

std::vector<std::int64_t> Generation::samples_of(const Group& group) const {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(group.rows));
  std::iota(samples.begin(), samples.end(), group.first);
  return samples;
}

void Generation::start(std::size_t group, bool begins) {
  PassPiece pass{.group = group};
  if (by_ == By::pieces) {
    const std::vector<std::int64_t> samples = samples_of(groups_[group]);
    pass.piece = begins ? sequences_.begin_prompt(samples) : sequences_.begin_last(samples);
    pass.ended = std::exchange(ended_, {});
  }
  if (begun_ % kChunk == 0) chunks_[begun_ / kChunk] = std::make_unique<Chunk>();
  pass_of(static_cast<Step>(begun_++)) = std::move(pass);
}

void Generation::start_next() {
  if (started_ < groups_.size()) start(started_++, /*begins=*/true);
}

Step Generation::begin(int workers) {
  for (int group = 0; group < kGroupsPerWorker * workers; ++group) start_next();
  return static_cast<Step>(begun_);
}

Step Generation::completed(Step pass) {
  const std::size_t number = std::exchange(pass_of(pass), {}).group;  // every stage is done with it
  std::unique_ptr<Chunk>& chunk = chunks_[static_cast<std::size_t>(pass) / kChunk];
  if (--chunk->left == 0) chunk.reset();
  Group& group = groups_[number];
  made_ += std::exchange(group.made, 0);
  if (group.ended) {
    ended_.push_back(number);
    start_next();
  } else {
    start(number, /*begins=*/false);
  }
  return static_cast<Step>(begun_);
}

void Generation::locate(Operation& operation) const {
  const Group& group = groups_[pass_of(operation.step).group];
  operation.first_row = group.first;
  operation.rows = group.rows;
}

const PassPiece* Generation::piece(const Operation& operation) const {
  return by_ == By::pieces ? &pass_of(operation.step) : nullptr;
}

void Generation::take(const Operation& operation, std::size_t output, const at::Tensor& values) {
  if (output != place_.output) return;
  Group& group = groups_[pass_of(operation.step).group];
  at::Tensor positions = at::empty({group.rows, 1, 1}, at::kLong);
  for (int i = 0; i < group.rows; ++i)
    positions.mutable_data_ptr<std::int64_t>()[i] = sequences_.last_in_piece(group.first + i);
  const at::Tensor logits =
      at::gather(values, 1, positions.to(values.device()).expand({group.rows, 1, place_.tokens}))
          .to(at::kCPU, at::kDouble)
          .contiguous();
  group.ended = true;
  for (int i = 0; i < group.rows; ++i) {
    const std::int64_t sample = group.first + i;
    if (sequences_.ended(sample)) continue;
    const std::span<const double> row(logits.const_data_ptr<double>() + i * place_.tokens,
                                      static_cast<std::size_t>(place_.tokens));
    const std::int64_t position = sequences_.last(sample) + 1;
    sequences_.append(
        sample, choose_token(row, {options_.temperature, options_.top_k}, draw_of(seed_, sample, position)));
    ++group.made;
    group.ended = group.ended && sequences_.ended(sample);
  }
}

void Generation::finish() {
  const NamedTensors tensors{{name_, sequences_.tokens()}, {name_ + ".length", sequences_.lengths()}};
  write_safetensors(stored(tensors), [&](std::string_view bytes) { file_.write(bytes); });
  file_.commit();
}

}  // namespace pp::run
