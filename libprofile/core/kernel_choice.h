// Which kernel of LibTorch runs a product of matrices or a convolution on a CPU, where it has several. Profiles
// measure the choice, plans carry it and runs obey it, so all plans of one profile round alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp {

/// left [rows, inner] times right [inner, columns]: as a new tensor, with a bias [columns], into a tensor that
/// is there, added to it, or many of them. A convolution in two dimensions of one group: forward, the gradient
/// of its input, that of its weight.
enum class KernelTask {
  product,
  product_with_bias,
  product_into,
  product_added,
  batched_product,
  convolution,
  convolution_input_gradient,
  convolution_weight_gradient
};

/// Of products: LibTorch's own choice, MKL on x86, or oneDNN's. Of convolutions: LibTorch's own choice, oneDNN,
/// or a product of matrices.
enum class Kernel { mkl, onednn, convolution, product };

/// How the matrices of a product lie in memory: by rows, or (t) by columns, as the transpose of one by rows.
enum class ProductLayout { nn, nt, tn, tt };

template <>
struct EnumNames<KernelTask> {
  static constexpr std::array table{
      std::pair{KernelTask::product, "product"sv},
      std::pair{KernelTask::product_with_bias, "product_with_bias"sv},
      std::pair{KernelTask::product_into, "product_into"sv},
      std::pair{KernelTask::product_added, "product_added"sv},
      std::pair{KernelTask::batched_product, "batched_product"sv},
      std::pair{KernelTask::convolution, "convolution"sv},
      std::pair{KernelTask::convolution_input_gradient, "convolution_input_gradient"sv},
      std::pair{KernelTask::convolution_weight_gradient, "convolution_weight_gradient"sv}};
};
template <>
struct EnumNames<Kernel> {
  static constexpr std::array table{std::pair{Kernel::mkl, "mkl"sv}, std::pair{Kernel::onednn, "onednn"sv},
                                    std::pair{Kernel::convolution, "convolution"sv},
                                    std::pair{Kernel::product, "product"sv}};
};
template <>
struct EnumNames<ProductLayout> {
  static constexpr std::array table{std::pair{ProductLayout::nn, "nn"sv}, std::pair{ProductLayout::nt, "nt"sv},
                                    std::pair{ProductLayout::tn, "tn"sv}, std::pair{ProductLayout::tt, "tt"sv}};
};

constexpr bool is_product(KernelTask task) { return task <= KernelTask::batched_product; }

/// All that the kernel of an operation may depend on; the number of threads is the profiled device's.
struct KernelKey {
  KernelTask task = KernelTask::product;
  DType dtype = DType::float32;
  ProductLayout layout = ProductLayout::nn;  ///< of products
  /// Products: rows, inner, columns; batched ones also how many. Convolutions: samples, channels, height, width
  /// of the input, channels of the output, height and width of the kernel, padding of height and width, stride,
  /// dilation.
  std::array<std::int64_t, 11> sizes{};
  auto operator<=>(const KernelKey&) const = default;
};

/// How many of KernelKey::sizes are used.
constexpr std::size_t size_count(KernelTask task) {
  if (task == KernelTask::batched_product) return 4;
  return is_product(task) ? 3 : 11;
}

/// Of a convolution: samples times height times width of the output.
constexpr std::int64_t output_positions(const KernelKey& key) {
  const auto& [n, in, height, width, out, kernel_height, kernel_width, padding_height, padding_width, stride,
               dilation] = key.sizes;
  const auto side = [&](std::int64_t length, std::int64_t kernel, std::int64_t padding) {
    return (length + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  return n * side(height, kernel_height, padding_height) * side(width, kernel_width, padding_width);
}

struct KernelChoice {
  KernelKey key;
  Kernel kernel = Kernel::mkl;
  /// Seconds per call of the two kernels of the task, as kernels_of(): of the usual one the best, of the other
  /// the median; none where it was not measured, as in plans.
  std::optional<std::array<Seconds, 2>> measured;
  bool operator==(const KernelChoice&) const = default;
};

/// The kernels of a task.
constexpr std::array<Kernel, 2> kernels_of(KernelTask task) {
  return is_product(task) ? std::array{Kernel::mkl, Kernel::onednn}
                          : std::array{Kernel::convolution, Kernel::product};
}

/// `usual`, or a hash of the effective choices: equal for runs that round alike.
std::string name_of_kernels(std::span<const KernelChoice> choices);

/// The choices by which a run differs from one without any, unmeasured, by key: the same numbers, whatever
/// was measured beside them.
std::vector<KernelChoice> effective(std::span<const KernelChoice> choices);

}  // namespace pp
