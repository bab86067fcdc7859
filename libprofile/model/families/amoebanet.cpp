// AmoebaNet-D (Real et al., Regularized evolution for image classifier architecture search, 2019) as GPipe
// scales it (Huang et al., GPipe: efficient training of giant neural networks using pipeline parallelism, 2019,
// table 1): L normal cells in three groups, D filters. Which outputs a normal cell joins follows Google's
// implementation, which has the paper's parameter counts.
#include <array>
#include <utility>
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

enum class Op { none, avg_pool_3x3, max_pool_3x3, max_pool_2x2, conv_1x1, conv_3x3, conv_1x7_7x1 };

/// One of the two operations that are added to a new state; state 0 is the cell before, 1 the one before that.
struct Branch {
  std::size_t state;
  Op op;
};
using Branches = std::array<std::array<Branch, 2>, 5>;
struct Genotype {
  Branches branches;
  std::vector<std::size_t> joined;  ///< states that are the cell's output
  std::int64_t stride;              ///< of operations on states 0 and 1
};

const Genotype& normal_cell() {
  static const Genotype genotype{{{{{{1, Op::conv_1x1}, {1, Op::max_pool_3x3}}},
                                   {{{1, Op::none}, {0, Op::conv_1x7_7x1}}},
                                   {{{0, Op::conv_1x1}, {0, Op::conv_1x7_7x1}}},
                                   {{{2, Op::max_pool_3x3}, {2, Op::none}}},
                                   {{{1, Op::avg_pool_3x3}, {5, Op::conv_1x1}}}}},
                                 {0, 3, 4, 6},
                                 1};
  return genotype;
}

const Genotype& reduction_cell() {
  static const Genotype genotype{{{{{{0, Op::max_pool_2x2}, {0, Op::max_pool_3x3}}},
                                   {{{2, Op::none}, {1, Op::conv_3x3}}},
                                   {{{2, Op::conv_1x7_7x1}, {2, Op::max_pool_3x3}}},
                                   {{{3, Op::none}, {1, Op::max_pool_2x2}}},
                                   {{{2, Op::avg_pool_3x3}, {3, Op::conv_1x1}}}}},
                                 {4, 5, 6},
                                 2};
  return genotype;
}

/// Grows the network cell by cell and remembers the two last ones.
class AmoebaNet {
 public:
  AmoebaNet(GraphBuilder& builder, std::int64_t channels) : builder_(builder), channels_(channels) {}

  void stem(const std::string& image) {
    const Convolution first{.out_channels = channels_, .kernel = 3, .stride = 2, .padding = 1};
    before_ = last_ = builder_.add("stem1.norm", "batch_norm2d", {builder_.conv2d("stem1.conv", image, first)});
    channels_before_ = channels_;
  }

  void add_cell(const std::string& name, const Genotype& genotype) {
    const bool reduction = genotype.stride == 2;
    if (reduction) channels_ *= 2;
    std::vector<std::string> states{relu_conv_norm(name + ".reduce1", last_, {.out_channels = channels_}),
                                    reduce_before(name + ".reduce2")};
    for (const auto& pair : genotype.branches) {
      states.push_back(
          add_state(name + ".state" + std::to_string(states.size()), states, pair, genotype.stride));
    }
    std::vector<std::string> joined;
    for (const std::size_t state : genotype.joined) joined.push_back(states[state]);
    before_ = std::exchange(last_, builder_.add(name, "concat", std::move(joined)));
    channels_before_ =
        std::exchange(channels_last_, channels_ * static_cast<std::int64_t>(genotype.joined.size()));
    after_reduction_ = reduction;
  }

  const std::string& output() const { return last_; }

 private:
  /// `stride`: of operations on states 0 and 1.
  std::string add_state(const std::string& name, const std::vector<std::string>& states,
                        const std::array<Branch, 2>& pair, std::int64_t stride) {
    const auto branch = [&](const std::string& part, const Branch& b) {
      return operation(part, states[b.state], b.op, b.state < 2 ? stride : 1);
    };
    const std::string a = branch(name + "a", pair[0]);
    const std::string b = branch(name + "b", pair[1]);
    return builder_.add(name, "add", {a, b});
  }

  std::string relu_conv_norm(const std::string& name, const std::string& x, const Convolution& convolution) {
    const std::string y =
        builder_.conv2d(name + ".conv", builder_.add(name + ".relu", "relu", {x}), convolution);
    return builder_.add(name + ".norm", "batch_norm2d", {y});
  }

  /// The output of the cell before the last one, brought to this cell's channels and size.
  std::string reduce_before(const std::string& name) {
    if (after_reduction_) return halve(name);
    if (channels_before_ != channels_) return relu_conv_norm(name, before_, {.out_channels = channels_});
    return before_;
  }

  /// Every second pixel and, for the other half of the channels, the pixels between them.
  std::string halve(const std::string& name) {
    const auto half = [&](const std::string& part, const std::string& x) {
      return builder_.conv2d(name + part, x, {.out_channels = channels_ / 2, .stride = 2});
    };
    const auto shift = [&](const std::string& part, const std::string& x, std::int64_t dim) {
      return builder_.add(name + part, "pad", {x},
                          {{"dim", dim}, {"before", std::int64_t{-1}}, {"after", std::int64_t{1}}});
    };
    const std::string x = builder_.add(name + ".relu", "relu", {before_});
    const std::string even = half(".conv1", x);
    const std::string odd = half(".conv2", shift(".right", shift(".down", x, 1), 2));
    return builder_.add(name + ".norm", "batch_norm2d",
                        {builder_.add(name + ".concat", "concat", {even, odd})});
  }

  std::string pool(const std::string& name, const std::string& op, const std::string& x, std::int64_t kernel,
                   std::int64_t stride) {
    return builder_.pool2d(name, op, x, kernel, stride, kernel == 3 ? 1 : 0);
  }

  std::string operation(const std::string& name, const std::string& x, Op op, std::int64_t stride) {
    const std::int64_t inner = channels_ / 4;
    switch (op) {
      case Op::none: break;
      case Op::max_pool_3x3: return pool(name, "max_pool2d", x, 3, stride);
      case Op::max_pool_2x2: return pool(name, "max_pool2d", x, 2, stride);
      case Op::avg_pool_3x3: {
        std::string y = pool(name, "avg_pool2d", x, 3, stride);
        builder_.last().attributes.emplace("count_include_pad", false);
        return y;
      }
      case Op::conv_1x1: return relu_conv_norm(name, x, {.out_channels = channels_, .stride = stride});
      case Op::conv_3x3:
        return narrow(name, x, {{{.out_channels = inner, .kernel = 3, .stride = stride, .padding = 1}}});
      case Op::conv_1x7_7x1:
        return narrow(name, x,
                      {{{.out_channels = inner, .kernel = 1, .kernel_width = 7, .padding_width = 3},
                        {.out_channels = inner, .kernel = 7, .padding = 3, .kernel_width = 1}}});
    }
    return x;
  }

  /// `inside` between a 1x1 convolution to fewer channels and one back.
  std::string narrow(const std::string& name, std::string x, const std::vector<Convolution>& inside) {
    int position = 0;
    const auto part = [&] { return name + "." + std::to_string(position++); };
    x = relu_conv_norm(part(), x, {.out_channels = inside.front().out_channels});
    for (const Convolution& convolution : inside) x = relu_conv_norm(part(), x, convolution);
    return relu_conv_norm(part(), x, {.out_channels = channels_});
  }

  GraphBuilder& builder_;
  std::int64_t channels_;      // of the operations of the current cell
  std::string last_, before_;  // the cells' outputs
  std::int64_t channels_last_ = channels_, channels_before_ = 0;
  bool after_reduction_ = false;  // the last cell halved the image: `before_` is twice as large
};

}  // namespace

ModelGraph build_amoebanet_d(GraphBuilder builder, const Arguments& arguments) {
  require_multiple(arguments, "image", 32);
  require_multiple(arguments, "L", 3);
  require_multiple(arguments, "D", 8);
  const std::int64_t image = arguments.whole("image");
  AmoebaNet net(builder, arguments.whole("D") / 4);
  net.stem(builder.input("image", {{3, image, image}}));
  net.add_cell("stem2", reduction_cell());
  net.add_cell("stem3", reduction_cell());
  for (int group = 1; group <= 5; group += 2) {
    const std::string name = "cell" + std::to_string(group);
    for (std::int64_t i = 1; i <= arguments.whole("L") / 3; ++i)
      net.add_cell(name + "_normal" + std::to_string(i), normal_cell());
    if (group < 5) net.add_cell("cell" + std::to_string(group + 1) + "_reduction", reduction_cell());
  }
  std::string x = builder.global_pool("avgpool", net.output());
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("fc", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
