#include "libprofile/core/kernel_choice.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "libprofile/core/hash.h"

namespace pp {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

KernelChoice read_choice(ObjectReader& reader) {
  KernelChoice choice;
  KernelKey& key = choice.key;
  key.task = reader.enumerator<KernelTask>("task");
  key.dtype = reader.enumerator<DType>("dtype");
  if (is_product(key.task)) key.layout = reader.enumerator<ProductLayout>("layout");
  const std::vector<std::int64_t> sizes = reader.integers("sizes", {.min = 0, .max = kLargest});
  if (sizes.size() != size_count(key.task)) {
    reader.fail("sizes", "has " + std::to_string(sizes.size()) + " numbers; a " +
                             std::string(name_of(key.task)) + " has " + std::to_string(size_count(key.task)));
  }
  std::ranges::copy(sizes, key.sizes.begin());
  choice.kernel = reader.enumerator<Kernel>("kernel");
  const auto [first, second] = kernels_of(key.task);
  if (choice.kernel != first && choice.kernel != second) {
    reader.fail("kernel", "is " + std::string(name_of(choice.kernel)) + "; a " +
                              std::string(name_of(key.task)) + " takes " + std::string(name_of(first)) +
                              " or " + std::string(name_of(second)));
  }
  if (!reader.has("seconds")) return choice;
  reader.object("seconds", [&](ObjectReader& member) {
    choice.measured = {Seconds(member.number(name_of(first))), Seconds(member.number(name_of(second)))};
  });
  return choice;
}

Json choice_json(const KernelChoice& choice) {
  const KernelKey& key = choice.key;
  Json json{{"task", name_of(key.task)}, {"dtype", name_of(key.dtype)}};
  if (is_product(key.task)) json["layout"] = name_of(key.layout);
  json["sizes"] = std::span(key.sizes).first(size_count(key.task));
  json["kernel"] = name_of(choice.kernel);
  if (!choice.measured) return json;
  const auto [first, second] = kernels_of(key.task);
  json["seconds"] = {{name_of(first), (*choice.measured)[0].count()},
                     {name_of(second), (*choice.measured)[1].count()}};
  return json;
}

}  // namespace

std::vector<KernelChoice> effective(std::span<const KernelChoice> choices) {
  std::vector<KernelChoice> kept;
  for (const KernelChoice& choice : choices) {
    if (choice.kernel != Kernel::mkl) kept.push_back({choice.key, choice.kernel, std::nullopt});
  }
  std::ranges::sort(kept, {}, &KernelChoice::key);
  return kept;
}

std::string name_of_kernels(std::span<const KernelChoice> choices) {
  Json json;
  add_kernels(json, effective(choices));
  return json.is_null() ? "usual" : content_hash(dump_json(json));
}

std::vector<KernelChoice> kernels_from_json(ObjectReader& reader) {
  std::vector<KernelChoice> choices;
  if (!reader.has("kernels")) return choices;
  reader.objects("kernels", [&](ObjectReader& member) { choices.push_back(read_choice(member)); });
  std::ranges::sort(choices, {}, &KernelChoice::key);
  if (std::ranges::adjacent_find(choices, {}, &KernelChoice::key) != choices.end())
    reader.fail("kernels", "has two entries of the same task, type, layout and sizes; keep one");
  return choices;
}

void add_kernels(Json& json, std::span<const KernelChoice> choices) {
  if (choices.empty()) return;
  Json& list = json["kernels"] = Json::array();
  for (const KernelChoice& choice : choices) list.push_back(choice_json(choice));
}

}  // namespace pp
