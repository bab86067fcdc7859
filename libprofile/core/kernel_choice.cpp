#include "libprofile/core/kernel_choice.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "libprofile/core/hash.h"
#include "libprofile/core/shared_fields.h"

namespace pp {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

/// The names of a task's two kernels, which are keys.
std::array<std::string, 2> names_of(KernelTask task) {
  const auto [first, second] = kernels_of(task);
  return {std::string(name_of(first)), std::string(name_of(second))};
}

}  // namespace

const ValueType kKernelSizes{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          KernelKey& key = *static_cast<KernelKey*>(to);
          Field numbers = field;
          numbers.integers = {0, kLargest};
          std::vector<std::int64_t> sizes;
          detail::read_value<std::vector<std::int64_t>>(numbers, json, pointer, &sizes);
          if (sizes.size() != size_count(key.task)) {
            const std::string task(name_of(key.task));
            detail::fail_at(pointer, "has " + std::to_string(sizes.size()) + " numbers; a " + task + " has " +
                                         std::to_string(size_count(key.task)));
          }
          std::ranges::copy(sizes, key.sizes.begin());
        },
    .write = [](const Field&, const void* from) -> Json {
      const auto& key = *static_cast<const KernelKey*>(from);
      return std::span(key.sizes).first(size_count(key.task));
    },
    .schema = detail::value_schema<std::vector<std::int64_t>>,
    .expected = detail::value_expected<std::vector<std::int64_t>>};

const ValueType kKernelSeconds{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          KernelChoice& choice = *static_cast<KernelChoice*>(to);
          ObjectReader reader(json, pointer);
          const auto [first, second] = names_of(choice.key.task);
          choice.measured = {Seconds(reader.number(first)), Seconds(reader.number(second))};
          reader.finish();
        },
    .write = [](const Field&, const void* from) -> Json {
      const auto& choice = *static_cast<const KernelChoice*>(from);
      const auto [first, second] = names_of(choice.key.task);
      return {{first, (*choice.measured)[0].count()}, {second, (*choice.measured)[1].count()}};
    },
    .schema = [](const Field&) -> Json {
      return {{"type", "object"}, {"additionalProperties", detail::number_schema({})}};
    }};

void check_kernel(const KernelChoice& choice, ObjectReader& reader) {
  const auto [first, second] = kernels_of(choice.key.task);
  if (choice.kernel == first || choice.kernel == second) return;
  const auto names = names_of(choice.key.task);
  reader.fail("kernel", "is " + std::string(name_of(choice.kernel)) + "; a " +
                            std::string(name_of(choice.key.task)) + " takes " + names[0] + " or " + names[1]);
}

void sort_kernels(std::vector<KernelChoice>& choices, ObjectReader& reader) {
  std::ranges::sort(choices, {}, &KernelChoice::key);
  if (std::ranges::adjacent_find(choices, {}, &KernelChoice::key) != choices.end())
    reader.fail("kernels", "has two entries of the same task, type, layout and sizes; keep one");
}

std::vector<KernelChoice> effective(std::span<const KernelChoice> choices) {
  std::vector<KernelChoice> kept;
  for (const KernelChoice& choice : choices) {
    if (choice.kernel != Kernel::mkl) kept.push_back({choice.key, choice.kernel, std::nullopt});
  }
  std::ranges::sort(kept, {}, &KernelChoice::key);
  return kept;
}

std::string name_of_kernels(std::span<const KernelChoice> choices) {
  const std::vector<KernelChoice> unusual = effective(choices);
  if (unusual.empty()) return "usual";
  Field list;
  list.keys = keys_of(kKernel);
  const Json json{{"kernels", detail::write_value<std::vector<KernelChoice>>(list, &unusual)}};
  return content_hash(dump_json(json));
}

}  // namespace pp
