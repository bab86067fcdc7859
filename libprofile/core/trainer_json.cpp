// The keys of pp.trainer, as a document and inside profiles.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/json_fields.h"
#include "libprofile/core/schema/document_schema.h"
#include "libprofile/core/trainer.h"

namespace pp {
namespace {

constexpr NumberRange kFactor{0.01, 100};

constexpr Object kTraffic{
    "traffic",
    key<&Traffic::elements>("elements", kFactor),
    key<&Traffic::attention>("attention", kFactor),
    key<&Traffic::loss>("loss", kFactor),
};

constexpr Object kRecipe{
    "recipe",
    key<&Recipe::products>("products"),
    key<&Recipe::cast_bytes>("cast_bytes", {.max = 64}),
    key<&Recipe::weight_copies>("weight_copies", {.max = 2}),
};

constexpr Object kExperts{
    "expert_kernels",
    defaulted<&ExpertKernels::efficiency>("efficiency", {0.01, 1}),
    defaulted<&ExpertKernels::grouped>("grouped"),
    defaulted<&ExpertKernels::host>("host_s", {.max = 1}),
    defaulted<&ExpertKernels::hidden>("hidden_exchange", kShare),
    defaulted<&ExpertKernels::imbalance>("imbalance", {1, 1000}),
    optional<&ExpertKernels::once_per_node>("once_per_node"),
};

void check_recipes(const TrainerSpec& trainer, ObjectReader& reader) {
  auto recipe = trainer.recipes.begin();
  look_at_each(reader, "recipes", [&](ObjectReader& member) {
    const auto earlier =
        std::ranges::find(trainer.recipes.begin(), recipe, recipe->products, &Recipe::products);
    if (earlier != recipe)
      member.fail("products", std::string(name_of(recipe->products)) + " is there twice; keep one");
    ++recipe;
  });
}

void check_launches(TrainerSpec& trainer, ObjectReader& reader) {
  if (!reader.has("backward_launch_s")) trainer.backward_launch = trainer.launch;
}

constexpr Object kTrainer{
    "trainer",
    key<&TrainerSpec::name>("name"),
    key<&TrainerSpec::source>("source"),
    defaulted<&TrainerSpec::attention>("attention"),
    defaulted<&TrainerSpec::elements>("elements"),
    defaulted<&TrainerSpec::recompute>("recompute"),
    defaulted<&TrainerSpec::gradients>("gradients"),
    defaulted<&TrainerSpec::launch>("launch_s", {.max = 1}),
    defaulted<&TrainerSpec::backward_launch>("backward_launch_s", {.max = 1}),  // launch_s
    defaulted<&TrainerSpec::update>("update_s", {.max = 1}),
    defaulted<&TrainerSpec::traffic>("traffic", kTraffic),
    defaulted<&TrainerSpec::hidden_gradients>("hidden_gradients", kShare),
    defaulted<&TrainerSpec::hidden_tensor>("hidden_tensor", kShare),
    optional<&TrainerSpec::hidden_context>("hidden_context", kShare),
    optional<&TrainerSpec::contention>("contention", kShare),
    defaulted<&TrainerSpec::bucket>("bucket_bytes"),
    defaulted<&TrainerSpec::logit_bytes>("logit_bytes", {.max = 64}),
    defaulted<&TrainerSpec::process>("process_bytes"),
    optional<&TrainerSpec::recipes>("recipes", kRecipe),
    check<check_recipes>(),
    optional<&TrainerSpec::experts>("experts", kExperts),
    check<check_launches>(),
};

}  // namespace

Keys trainer_keys() { return keys_of(kTrainer); }

TrainerSpec trainer_from_json(const Json& json, std::string_view pointer) {
  return document_from_json(kTrainer, json, std::string(pointer));
}

Json to_json(const TrainerSpec& trainer) { return document_json(kTrainer, trainer); }

TrainerSpec parse_trainer(std::string_view text) { return trainer_from_json(parse_json(text)); }

}  // namespace pp
