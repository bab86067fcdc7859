// The keys of pp.checkpoint, and what must be the same for a training to go on.
#include "librun/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"
#include "libprofile/core/json_fields.h"
#include "librun/options/run_options.h"

namespace pp::run {

namespace {

constexpr NumberRange kNotNegative{0, std::numeric_limits<double>::max()};

constexpr Object kEvaluated{
    "evaluated",
    key<&Evaluated::step>("step"),
    key<&Evaluated::best_loss>("best_loss", kAnyNumber),
    key<&Evaluated::best_step>("best_step"),
    key<&Evaluated::since_best>("since_best"),
};

constexpr Object kLossScale{
    "loss_scale",
    key<&LossScale::factor>("factor", kPositive),
    key<&LossScale::finite_steps>("finite_steps"),
};

constexpr Object kPosition{
    "position",
    key<&Position::step>("step"),
    key<&Position::epoch>("epoch"),
    key<&Position::epoch_steps>("epoch_steps"),
    key<&Position::epoch_loss>("epoch_loss", kAnyNumber),
    defaulted<&Position::epoch_samples>("epoch_samples", kNotNegative),  // version 1 may lack it
    optional<&Position::loss_scale>("loss_scale", kLossScale),
    optional<&Position::evaluated>("evaluated", kEvaluated),
};

constexpr Object kIdentity{
    "training_identity",
    key<&TrainingIdentity::model_hash>("model_hash"),
    key<&TrainingIdentity::dtype>("dtype"),
    key<&TrainingIdentity::optimizer>("optimizer"),
    key<&TrainingIdentity::samples>("samples", {.min = 1}),
    key<&TrainingIdentity::mini_batch>("mini_batch", {.min = 1}),
    key<&TrainingIdentity::steps_per_epoch>("steps_per_epoch", {.min = 1}),
};

void check_checkpoint_part(CheckpointPart& part, ObjectReader& reader) {
  if (part.file.empty() || part.file.front() == '.' || part.file.find('/') != std::string::npos)
    reader.fail("file", "\"" + part.file + "\" is not the name of a file in the checkpoint's folder");
}

constexpr Object kPart{
    "checkpoint_part",
    key<&CheckpointPart::file>("file"),
    key<&CheckpointPart::bytes>("bytes"),
    key<&CheckpointPart::hash>("hash"),
    defaulted<&CheckpointPart::owner>("owner"),  // version 1 lacks it
    check<check_checkpoint_part>(),
};

/// Version 1 names no owner: the n-th part is for rank n.
void check_parts(Manifest& manifest, ObjectReader& reader, bool old) {
  std::set<std::string> files;
  int number = 0;
  look_at_each(reader, "parts", [&](ObjectReader& member) {
    CheckpointPart& part = manifest.parts[at(number)];
    if (old)
      part.owner = number;
    else
      member.integer("owner", {.max = std::numeric_limits<int>::max()});
    if (!files.insert(part.file).second) member.fail("file", "is listed twice");
    ++number;
  });
}

/// It is counted in epochs of the identity's length. Some manifests of version 1 say no epoch_samples: all
/// their steps are full.
void check_position(Manifest& manifest, ObjectReader& reader, bool old) {
  Position& position = manifest.position;
  look_at(reader, "position", [&](ObjectReader& member) {
    if (!old || member.has("epoch_samples"))
      member.number("epoch_samples", kNotNegative);
    else
      position.epoch_samples =
          static_cast<double>(position.epoch_steps) * static_cast<double>(manifest.identity.mini_batch);
  });
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

void check_manifest(Manifest& manifest, ObjectReader& reader) {
  const bool old = reader.integer("version") == 1;
  check_position(manifest, reader, old);
  check_parts(manifest, reader, old);
  if (!old) reader.text("hash");
}

constexpr Object kManifest{
    "checkpoint",
    key<&Manifest::position>("position", kPosition),
    key<&Manifest::identity>("training", kIdentity),
    key<&Manifest::seed>("seed", kSeed),
    key<&Manifest::micro_batches>("micro_batches", {.min = 1}),
    key<&Manifest::plan_hash>("plan_hash"),
    defaulted<&Manifest::kernels>("kernels"),
    key<&Manifest::settings>("settings", kSettings),
    key<&Manifest::parts>("parts", kPart),
    looked_at<Manifest>("hash",
                        kText),  // of all that the document says but this; version 1 may lack it
    check<check_manifest>(),
};

}  // namespace

Keys manifest_keys() { return keys_of(kManifest); }

Json to_json(const Manifest& manifest) {
  Json document = document_json(kManifest, manifest);
  document["hash"] = own_hash(document);
  return document;
}

Manifest parse_manifest(std::string_view text) {
  const Json document = parse_json(text);
  Manifest manifest = document_from_json(kManifest, document);
  if (document.contains("hash") && document["hash"] != own_hash(document))
    detail::fail_at("/hash", "is not that of the manifest, which has been changed; use another checkpoint");
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
      if (is_compared(name)) names.insert(name);
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
