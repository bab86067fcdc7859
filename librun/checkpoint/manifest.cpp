#include "librun/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"

namespace pp::run {

namespace {

constexpr auto kManifestFormat = "pp.checkpoint";
constexpr int kManifestVersion = 2;
constexpr NumberRange kAnyValue{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
constexpr NumberRange kNotNegative{0, std::numeric_limits<double>::max()};

// Some manifests of version 1 say no epoch_samples: all their steps are full.
Position read_position(ObjectReader& reader, int version, const TrainingIdentity& identity) {
  Position position;
  position.step = reader.integer("step");
  position.epoch = static_cast<int>(reader.integer("epoch", {0, std::numeric_limits<int>::max()}));
  position.epoch_steps = reader.integer("epoch_steps");
  position.epoch_loss = reader.number("epoch_loss", kAnyValue);
  position.epoch_samples =
      version > 1 || reader.has("epoch_samples")
          ? reader.number("epoch_samples", kNotNegative)
          : static_cast<double>(position.epoch_steps) * static_cast<double>(identity.mini_batch);
  if (reader.has("evaluated")) {
    reader.object("evaluated", [&](ObjectReader& member) {
      position.evaluated = Evaluated{member.integer("step"), member.number("best_loss", kAnyValue),
                                     member.integer("best_step"), member.integer("since_best")};
    });
  }
  if (!reader.has("loss_scale")) return position;
  reader.object("loss_scale", [&](ObjectReader& scale) {
    position.loss_scale.factor =
        scale.number("factor", {std::numeric_limits<double>::min(), std::numeric_limits<double>::max()});
    position.loss_scale.finite_steps = scale.integer("finite_steps");
  });
  return position;
}

TrainingIdentity read_identity(ObjectReader& reader) {
  TrainingIdentity identity;
  identity.model_hash = reader.text("model_hash");
  identity.dtype = reader.text("dtype");
  identity.optimizer = reader.text("optimizer");
  identity.samples = reader.integer("samples", {.min = 1});
  identity.mini_batch = reader.integer("mini_batch", {.min = 1});
  identity.steps_per_epoch = reader.integer("steps_per_epoch", {.min = 1});
  return identity;
}

// Version 1 names no owner: the `number`-th part is for the rank of that number.
CheckpointPart read_part(ObjectReader& reader, int version, int number) {
  CheckpointPart part{reader.text("file"), reader.integer("bytes"), reader.text("hash"), number};
  if (version > 1) part.owner = static_cast<int>(reader.integer("owner", {0, std::numeric_limits<int>::max()}));
  if (part.file.empty() || part.file.front() == '.' || part.file.find('/') != std::string::npos)
    reader.fail("file", "\"" + part.file + "\" is not the name of a file in the checkpoint's folder");
  return part;
}

// The position is counted in epochs of this length.
void check_position(ObjectReader& reader, const Manifest& manifest) {
  const Position& position = manifest.position;
  const Step length = manifest.identity.steps_per_epoch;
  if (position.epoch_steps < length && position.step / length == position.epoch &&
      position.step % length == position.epoch_steps)
    return;
  reader.fail("position", "step " + std::to_string(position.step) + " is not step " +
                              std::to_string(position.epoch_steps) + " of epoch " +
                              std::to_string(position.epoch) + " when epochs have " + std::to_string(length) +
                              " steps");
}

/// Of all that the document says but this.
std::string own_hash(Json document) {
  document.erase("hash");
  return content_hash(dump_json(document));
}

/// Settings without influence on what is trained.
bool changes_no_bit(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{
      "epochs",    "steps",      "evaluate",         "evaluate_every",
      "keep_best", "early_stop", "checkpoint_every", "memory_limit_bytes"};
  return std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

Json to_json(const Manifest& manifest) {
  const Position& position = manifest.position;
  const TrainingIdentity& identity = manifest.identity;
  Json parts = Json::array();
  for (const CheckpointPart& part : manifest.parts)
    parts.push_back({{"file", part.file}, {"bytes", part.bytes}, {"hash", part.hash}, {"owner", part.owner}});
  Json reached{{"step", position.step},
               {"epoch", position.epoch},
               {"epoch_steps", position.epoch_steps},
               {"epoch_loss", position.epoch_loss},
               {"epoch_samples", position.epoch_samples}};
  if (position.loss_scale != LossScale{}) {
    reached["loss_scale"] = {{"factor", position.loss_scale.factor},
                             {"finite_steps", position.loss_scale.finite_steps}};
  }
  if (const std::optional<Evaluated>& evaluated = position.evaluated) {
    reached["evaluated"] = {{"step", evaluated->step},
                            {"best_loss", evaluated->best_loss},
                            {"best_step", evaluated->best_step},
                            {"since_best", evaluated->since_best}};
  }
  Json document{{"format", kManifestFormat},
                {"version", kManifestVersion},
                {"position", reached},
                {"training",
                 {{"model_hash", identity.model_hash},
                  {"dtype", identity.dtype},
                  {"optimizer", identity.optimizer},
                  {"samples", identity.samples},
                  {"mini_batch", identity.mini_batch},
                  {"steps_per_epoch", identity.steps_per_epoch}}},
                {"seed", manifest.seed},
                {"micro_batches", manifest.micro_batches},
                {"plan_hash", manifest.plan_hash},
                {"kernels", manifest.kernels},
                {"settings", to_json(manifest.settings)},
                {"parts", parts}};
  document["hash"] = own_hash(document);
  return document;
}

Manifest parse_manifest(std::string_view text) {
  Manifest manifest;
  const Json document = parse_json(text);
  read_document(document, kManifestFormat, IntegerRange{1, kManifestVersion}, [&](ObjectReader& reader) {
    const auto version = static_cast<int>(reader.integer("version"));
    reader.object("training", [&](ObjectReader& member) { manifest.identity = read_identity(member); });
    reader.object("position", [&](ObjectReader& member) {
      manifest.position = read_position(member, version, manifest.identity);
    });
    check_position(reader, manifest);
    manifest.seed = read_seed(reader, "seed");
    manifest.micro_batches = reader.integer("micro_batches", {.min = 1});
    manifest.plan_hash = reader.text("plan_hash");
    if (reader.has("kernels")) manifest.kernels = reader.text("kernels");
    manifest.settings = read_settings(reader, "settings");
    std::set<std::string> files;
    reader.objects("parts", [&](ObjectReader& member) {
      manifest.parts.push_back(read_part(member, version, static_cast<int>(manifest.parts.size())));
      if (!files.insert(manifest.parts.back().file).second) member.fail("file", "is listed twice");
    });
    if ((version > 1 || reader.has("hash")) && reader.text("hash") != own_hash(document))
      reader.fail("hash", "is not that of the manifest, which has been changed; use another checkpoint");
  });
  return manifest;
}

void check_identity(const TrainingIdentity& found, const TrainingIdentity& wanted) {
  const auto same = [](const auto& was, const auto& is, const std::string& what, const std::string& remedy) {
    if (was == is) return;
    std::string difference = what;
    if constexpr (std::is_integral_v<std::decay_t<decltype(was)>>) {
      difference += " " + std::to_string(was) + ", this training " + std::to_string(is);
    } else {
      difference += " " + was + ", this training " + is;
    }
    throw Error(ErrorKind::data, "the checkpoint has " + difference + "; " + remedy);
  };
  const std::string begin = "begin another training from its weights with --initial-weights";
  if (found.model_hash != wanted.model_hash) {
    throw Error(ErrorKind::data, "the checkpoint is of another model (hash " + found.model_hash +
                                     ", the plan's model has " + wanted.model_hash + "); plan the same model");
  }
  same(found.dtype, wanted.dtype, "numbers of type", "plan with the same type");
  same(found.optimizer, wanted.optimizer, "the optimizer", "plan with the same optimizer, or " + begin);
  same(found.samples, wanted.samples, "epochs of samples:", "give the same data, or " + begin);
  same(found.mini_batch, wanted.mini_batch, "mini_batch =", "plan with the same mini-batch, or " + begin);
  same(found.steps_per_epoch, wanted.steps_per_epoch,
       "steps per epoch:", "give --drop-last as before, or " + begin);
}

std::vector<std::string> differences(const Manifest& was, const Manifest& is) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& name, const std::string& before, const std::string& now) {
    if (before != now) found.push_back(name + " " + now + " (was " + before + ")");
  };
  compare("seed", std::to_string(was.seed), std::to_string(is.seed));
  compare("micro_batches", std::to_string(was.micro_batches), std::to_string(is.micro_batches));
  compare("kernels", was.kernels, is.kernels);
  std::set<std::string> names;
  for (const Settings* settings : {&was.settings, &is.settings}) {
    for (const auto& [name, value] : *settings) {
      if (!changes_no_bit(name)) names.insert(name);
    }
  }
  const auto text = [](const Settings& settings, const std::string& name) {
    const auto value = settings.find(name);
    return value == settings.end() ? std::string("not given") : setting_text(value->second);
  };
  for (const std::string& name : names) compare(name, text(was.settings, name), text(is.settings, name));
  return found;
}

}  // namespace pp::run
