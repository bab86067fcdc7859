// The keys of pp.trainer, as a document and inside profiles.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/trainer.h"

namespace pp {
namespace {

constexpr std::string_view kFormat = "pp.trainer";
constexpr int kVersion = 1;
constexpr NumberRange kTraffic{.min = 0.01, .max = 100};
constexpr double kMostLogitBytes = 64, kMostCastBytes = 64;

template <class Read>
void read_if(ObjectReader& reader, std::string_view key, const Read& read) {
  if (reader.has(key)) read(key);
}

TrainerSpec read_trainer(ObjectReader& reader) {
  TrainerSpec trainer;
  trainer.name = reader.text("name");
  trainer.source = reader.text("source");
  const auto time = [&](Seconds& to) {
    return [&](std::string_view key) { to = Seconds(reader.number(key, {.max = 1})); };
  };
  const auto share = [&](double& to) {
    return [&](std::string_view key) { to = reader.number(key, {.max = 1}); };
  };
  const auto bytes = [&](Bytes& to) { return [&](std::string_view key) { to = Bytes(reader.integer(key)); }; };
  if (reader.has("attention")) trainer.attention = reader.enumerator<AttentionKernel>("attention");
  if (reader.has("elements")) trainer.elements = reader.enumerator<ElementKernels>("elements");
  if (reader.has("recompute")) trainer.recompute = reader.enumerator<RecomputeExtent>("recompute");
  if (reader.has("gradients")) trainer.gradients = reader.enumerator<GradientType>("gradients");
  read_if(reader, "launch_s", time(trainer.launch));
  trainer.backward_launch = trainer.launch;
  read_if(reader, "backward_launch_s", time(trainer.backward_launch));
  read_if(reader, "update_s", time(trainer.update));
  if (reader.has("traffic")) {
    reader.object("traffic", [&](ObjectReader& member) {
      trainer.traffic = {.elements = member.number("elements", kTraffic),
                         .attention = member.number("attention", kTraffic),
                         .loss = member.number("loss", kTraffic)};
    });
  }
  read_if(reader, "hidden_gradients", share(trainer.hidden_gradients));
  read_if(reader, "hidden_tensor", share(trainer.hidden_tensor));
  read_if(reader, "hidden_context", share(trainer.hidden_context));
  read_if(reader, "bucket_bytes", bytes(trainer.bucket));
  if (reader.has("logit_bytes")) trainer.logit_bytes = reader.number("logit_bytes", {.max = kMostLogitBytes});
  read_if(reader, "process_bytes", bytes(trainer.process));
  if (!reader.has("recipes")) return trainer;
  reader.objects("recipes", [&](ObjectReader& member) {
    const Recipe recipe{.products = member.enumerator<NarrowType>("products"),
                        .cast_bytes = member.number("cast_bytes", {.max = kMostCastBytes}),
                        .weight_copies = member.number("weight_copies", {.max = 2})};
    if (std::ranges::count(trainer.recipes, recipe.products, &Recipe::products) > 0)
      member.fail("products", std::string(name_of(recipe.products)) + " is there twice; keep one");
    trainer.recipes.push_back(recipe);
  });
  return trainer;
}

}  // namespace

TrainerSpec trainer_from_json(const Json& json, std::string_view pointer) {
  TrainerSpec trainer;
  const auto read = [&](ObjectReader& reader) { trainer = read_trainer(reader); };
  read_document(json, kFormat, kVersion, read, std::string(pointer));
  return trainer;
}

Json to_json(const TrainerSpec& trainer) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"name", trainer.name},
            {"source", trainer.source},
            {"attention", name_of(trainer.attention)},
            {"elements", name_of(trainer.elements)},
            {"recompute", name_of(trainer.recompute)},
            {"gradients", name_of(trainer.gradients)},
            {"launch_s", trainer.launch.count()},
            {"backward_launch_s", trainer.backward_launch.count()},
            {"update_s", trainer.update.count()},
            {"traffic",
             {{"elements", trainer.traffic.elements},
              {"attention", trainer.traffic.attention},
              {"loss", trainer.traffic.loss}}},
            {"hidden_gradients", trainer.hidden_gradients},
            {"hidden_tensor", trainer.hidden_tensor},
            {"bucket_bytes", trainer.bucket.value},
            {"logit_bytes", trainer.logit_bytes},
            {"process_bytes", trainer.process.value}};
  if (trainer.hidden_context > 0) json["hidden_context"] = trainer.hidden_context;
  for (const Recipe& recipe : trainer.recipes) {
    json["recipes"].push_back({{"products", name_of(recipe.products)},
                               {"cast_bytes", recipe.cast_bytes},
                               {"weight_copies", recipe.weight_copies}});
  }
  return json;
}

TrainerSpec parse_trainer(std::string_view text) { return trainer_from_json(parse_json(text)); }

}  // namespace pp
