#include "librun/data/synthetic.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numbers>
#include <utility>

#include "libprofile/core/model/model_traits.h"
#include "libprofile/model/ops.h"
#include "librun/data/model_data.h"

namespace pp::run {

namespace {

constexpr std::int64_t kMostClasses = 16;
constexpr double kNoise = 0.5;         // standard deviation around a prototype, whose own is 1
constexpr double kRandomTokens = 0.1;  // share of tokens that do not follow the rule
// The token after t is (kFactor*t + kStep) mod vocabulary.
constexpr std::int64_t kFactor = 5, kStep = 3;
constexpr std::int64_t kAlike = 8;  // samples of a stream with one class

// What a draw is for: with the seed it keys the generator, so that draws do not depend on each other's number.
enum class Purpose {
  classes,
  tokens,
  input_prototype,
  input_noise,
  target_prototype,
  target_noise,
  other_input_prototype,
  other_target_prototype
};

at::Generator generator(std::uint64_t seed, Purpose purpose, std::size_t tensor, int subset) {
  const model::RandomKey key{seed, static_cast<std::int64_t>(purpose), static_cast<std::int64_t>(tensor)};
  return at::make_generator<at::CPUGeneratorImpl>(model::mix(key, subset));
}

Shape with_samples(std::int64_t samples, const Shape& shape) {
  Shape all{samples};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

// Number of different tokens of an integer input.
std::int64_t token_count(const ResolvedModel& model, std::size_t input) {
  const std::int64_t rows = index_limit(model, {TensorSource::Kind::input, static_cast<int>(input), 0});
  return rows == 0 ? kMostClasses : rows;
}

// Draws the tensors of one data set.
class Maker {
 public:
  Maker(const ResolvedModel& model, std::int64_t samples, std::uint64_t seed, Subset subset, DType dtype,
        double drift)
      : model_(model),
        samples_(samples),
        seed_(seed),
        subset_(subset == Subset::training ? 1 : 2),
        dtype_(dtype),
        drift_(drift) {
    std::int64_t classes = class_count(model);
    for (std::size_t i = 0; classes == 0 && i < model.graph.targets.size(); ++i)
      classes = index_limit(model, {TensorSource::Kind::target, static_cast<int>(i), 0});
    classes_ = classes == 0 ? kMostClasses : std::min(classes, kMostClasses);
    at::Generator gen = generator(seed_, Purpose::classes, 0, subset_);
    hidden_ = at::empty({samples_}, at::kLong).random_(0, classes_, gen);
    if (drift_ > 0)
      hidden_ = at::index_select(hidden_, 0, at::arange(samples_, at::kLong).floor_divide(kAlike));
  }

  MemoryDataset::Column input(std::size_t i) {
    const TensorType& type = model_.graph.inputs[i].type;
    if (is_floating(type.dtype))
      return floating(type, {Purpose::input_prototype, Purpose::other_input_prototype}, Purpose::input_noise,
                      i);
    const at::Tensor sequence = tokens(i);  // [samples, length + 1]
    const std::int64_t length = sequence.size(1) - 1;
    sequences_.emplace_back(type.shape, sequence);
    return integers(type, sequence.narrow(1, 0, length));
  }

  MemoryDataset::Column target(std::size_t i) {
    const TensorType& type = model_.graph.targets[i].type;
    if (is_floating(type.dtype))
      return floating(type, {Purpose::target_prototype, Purpose::other_target_prototype}, Purpose::target_noise,
                      i);
    const at::Tensor values = target_integers(type);
    const std::int64_t limit = index_limit(model_, {TensorSource::Kind::target, static_cast<int>(i), 0});
    return integers(type, limit == 0 ? values : values.remainder(limit));
  }

 private:
  // Of each sample: that of its class.
  at::Tensor prototypes(const Shape& shape, Purpose purpose, std::size_t i) {
    at::Generator shared = generator(seed_, purpose, i, 0);
    const at::Tensor all = at::empty(with_samples(classes_, shape), at::kFloat).normal_(0, 1, shared);
    return at::index_select(all, 0, hidden_);
  }

  MemoryDataset::Column floating(const TensorType& type, std::pair<Purpose, Purpose> prototype, Purpose noise,
                                 std::size_t i) {
    at::Generator own = generator(seed_, noise, i, subset_);
    at::Tensor values = at::empty(with_samples(samples_, type.shape), at::kFloat).normal_(0, kNoise, own);
    at::Tensor mine = prototypes(type.shape, prototype.first, i);
    if (drift_ > 0) {
      Shape by_sample(type.shape.size() + 1, 1);
      by_sample.front() = samples_;
      const at::Tensor angle =
          at::arange(samples_, at::kDouble).mul(2 * std::numbers::pi * drift_).view(by_sample).to(at::kFloat);
      mine = mine.mul(angle.cos()).add(prototypes(type.shape, prototype.second, i).mul(angle.sin()));
    }
    values.add_(mine);
    return {values, model::scalar_type(dtype_)};
  }

  // Before what reads them limits them: there may be fewer classes than tokens.
  at::Tensor target_integers(const TensorType& type) const {
    for (const auto& [shape, sequence] : sequences_) {
      if (shape == type.shape && !shape.empty()) return sequence.narrow(1, 1, sequence.size(1) - 1);
    }
    const at::Tensor offsets = at::arange(element_count(type.shape), at::kLong);
    return hidden_.unsqueeze(1).add(offsets).remainder(classes_);
  }

  static MemoryDataset::Column integers(const TensorType& type, const at::Tensor& values) {
    return {values.reshape(with_samples(values.size(0), type.shape)).contiguous(),
            model::scalar_type(type.dtype)};
  }

  at::Tensor tokens(std::size_t i) {
    const std::int64_t count = token_count(model_, i),
                       length = element_count(model_.graph.inputs[i].type.shape);
    at::Generator gen = generator(seed_, Purpose::tokens, i, subset_);
    std::vector<at::Tensor> sequence{hidden_.remainder(count)};
    const at::Tensor step = at::arange(samples_, at::kDouble)
                                .mul(drift_ * static_cast<double>(count))
                                .floor()
                                .to(at::kLong)
                                .add(kStep);
    for (std::int64_t t = 0; t < length; ++t) {
      const at::Tensor random = at::empty({samples_}, at::kLong).random_(0, count, gen);
      const at::Tensor stray = at::empty({samples_}, at::kFloat).uniform_(0, 1, gen).lt(kRandomTokens);
      sequence.push_back(at::where(stray, random, sequence.back().mul(kFactor).add(step).remainder(count)));
    }
    for (at::Tensor& token : sequence) token = token.unsqueeze(1);
    return at::cat(sequence, 1);
  }

  const ResolvedModel& model_;
  std::int64_t samples_;
  std::uint64_t seed_;
  int subset_;
  DType dtype_;
  double drift_;
  std::int64_t classes_ = 1;
  at::Tensor hidden_;  // [samples], the class of each
  std::vector<std::pair<Shape, at::Tensor>> sequences_;
};

}  // namespace

MemoryDataset make_synthetic(const ResolvedModel& model, std::int64_t samples, std::uint64_t seed,
                             Subset subset, DType dtype, double drift) {
  MemoryDataset data;
  data.name = "synthetic";
  data.sample_count = samples;
  Maker maker(model, samples, seed, subset, dtype, drift);
  for (std::size_t i = 0; i < model.graph.inputs.size(); ++i) data.inputs.push_back(maker.input(i));
  for (std::size_t i = 0; i < model.graph.targets.size(); ++i) data.targets.push_back(maker.target(i));
  return data;
}

}  // namespace pp::run
