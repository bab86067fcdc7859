#include "tests/lab/fuzz/runtime_documents.h"

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/hash.h"
#include "librun/checkpoint/manifest.h"
#include "librun/checkpoint/safetensors.h"
#include "librun/checkpoint/weight_files.h"
#include "librun/checkpoint/weight_output.h"
#include "librun/report/html.h"
#include "tests/lab/fuzz/corpus.h"
#include "tests/lab/fuzz/data_files.h"
#include "tests/lab/fuzz/mutate_json.h"
#include "tests/lab/fuzz/mutate_text.h"
#include "tests/support/schema.h"

namespace pp::fuzz {
namespace {

const plan::Plan& sample_plan() {
  static const plan::Plan plan = trainable_corpus().front();
  return plan;
}

run::RunReport sample_report() {
  run::RunReport report;
  report.context = {{"pp", "0.1"}};
  report.plan_hash = "sha256:00";
  report.settings = {{"data", "synthetic"}};
  report.exit_reason = "completed";
  report.steps = 2;
  report.seed = 7;
  report.step = Seconds(0.25);
  report.step_losses = {2.5, -0.5};
  report.epochs = {{0, 1.5, 1.25, 0.5, 100}, {1, 1.0, std::nullopt, std::nullopt, 90}};
  report.evaluations = {{0, 1, 1.25, 0.5}, {1, 2, 1.0, std::nullopt}};
  report.best = run::BestReport{2, 1.0, 0, "ck/step-2"};
  report.plan = sample_plan();
  for (const plan::Worker& worker : report.plan.workers) {
    run::WorkerReport& of_worker = report.workers.emplace_back();
    of_worker.id = worker.id;
    of_worker.busy = Seconds(0.2);
  }
  const plan::Op op{plan::OpKind::forward, StageId{0}, 0};
  report.history.add(Seconds(0.25), std::vector<run::StepFigures>(report.workers.size()));
  report.last_steps = {1, 1, {{{WorkerId{0}, op, Seconds(0), Seconds(0.1)}, Bytes(7), Bytes(6)}}, {}};
  report.op_times = {{plan::OpKind::backward, StageId{0}, 8, Seconds(0.01), Seconds(0.02)}};
  report.comparisons = {{"step_s", 0.2, 0.25, 1.25}};
  return report;
}

std::string check_report(Random& random, const std::filesystem::path& folder) {
  Json json = to_json(sample_report());
  for (std::size_t i = 1 + random.below(3); i > 0; --i) mutate_json(random, json);
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
  if (random.one_in(10)) mutate_bytes(random, text);
  write_file(folder / "report.json", text);
  const Json read = parse_json(text);
  const run::RunReport report = run::report_from_json(read);
  if (const std::string wrong = test::schema_error("report", read); !wrong.empty())
    return "the schema refuses a report that is read: " + wrong;
  const run::NamedReport named{"report.json", &report};
  const std::string page = run::report_html(std::span(&named, 1));
  std::size_t scripts = 0;
  for (std::size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++scripts;
  if (scripts != 3) return "a report's page has a script that is not the page's";
  const std::string written = dump_json(to_json(report));
  const bool same = dump_json(to_json(run::report_from_json(parse_json(written)))) == written;
  return same ? "" : "a report is read as another one";
}

/// Half of them with the hash of what they say after the change.
std::string check_manifest(Random& random, const std::filesystem::path& folder) {
  run::Manifest manifest;
  manifest.position = {.step = 7, .epoch = 1, .epoch_steps = 3, .epoch_loss = 0.5, .epoch_samples = 24};
  manifest.identity = {.model_hash = "sha256:m",
                       .dtype = "float32",
                       .optimizer = "adamw",
                       .samples = 32,
                       .mini_batch = 8,
                       .steps_per_epoch = 4};
  if (random.one_in(2))
    manifest.position.evaluated = run::Evaluated{.step = 4, .best_loss = -0.5, .best_step = 2, .since_best = 1};
  if (random.one_in(2)) manifest.position.loss_scale = {.factor = 32768, .finite_steps = 17};
  manifest.settings = {{"learning_rate", 0.05}, {"shuffle", true}, {"lr_schedule", std::string("constant")}};
  manifest.parts = {{"weights-0.safetensors", 12, "sha256:x", 0}, {"weights-1.safetensors", 12, "sha256:y", 1}};
  Json json = run::to_json(manifest);
  for (std::size_t i = 1 + random.below(3); i > 0; --i) mutate_json(random, json);
  if (json.is_object() && random.one_in(2)) {
    json.erase("hash");
    const std::string hash =
        content_hash(dump_json(parse_json(json.dump(-1, ' ', false, Json::error_handler_t::ignore))));
    if (random.one_in(4))
      json["version"] = 1;
    else
      json["hash"] = hash;
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
  if (random.one_in(10)) mutate_bytes(random, text);
  write_file(folder / "manifest.json", text);
  const run::Manifest read = run::parse_manifest(text);
  if (const std::string wrong = test::schema_error("checkpoint", parse_json(text)); !wrong.empty())
    return "the schema refuses a manifest that is read: " + wrong;
  return run::parse_manifest(dump_json(to_json(read))) == read ? "" : "a manifest is read as another one";
}

std::string check_safetensors(Random& random, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "w.safetensors";
  {
    const std::vector<run::StoredTensor> tensors{{"fc.weight", {{1, 2}, DType::float32}, "abcdefgh"},
                                                 {"fc.bias", {{3}, DType::uint8}, "xyz"},
                                                 {"step", {{}, DType::int64}, "12345678"}};
    AtomicFile file(path);
    run::write_safetensors(tensors, [&](std::string_view bytes) { file.write(bytes); });
    file.commit();
  }
  std::string bytes = read_file(path);
  if (random.one_in(2)) mutate_bytes(random, bytes);
  if (random.one_in(3)) mutate_cells(random, bytes, ",:[]");
  if (random.one_in(6)) bytes.replace(0, std::min<std::size_t>(bytes.size(), 8), std::string(8, '\xff'));
  write_file(path, bytes);
  const run::SafetensorsFile read(path);
  std::size_t total = 0;
  for (const run::SafetensorsFile::Entry& tensor : read.tensors()) total += read.read(tensor).size();
  return total <= bytes.size() ? "" : "tensors are larger than their file";
}

/// An index of shards, as Hugging Face writes it, over two of them.
std::string check_shards(Random& random, const std::filesystem::path& folder) {
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  const std::vector<run::ModelTensor> tensors{{"fc.weight", {{1, 2}, DType::float32}},
                                              {"fc.bias", {{3}, DType::uint8}}};
  const std::vector<run::StoredTensor> stored{{"fc.weight", tensors[0].type, "abcdefgh"},
                                              {"fc.bias", tensors[1].type, "xyz"}};
  run::WeightOutput(index, tensors, Bytes(8)).write(stored);
  Json json = parse_json(read_file(index));
  for (std::size_t i = 1 + random.below(3); i > 0; --i) mutate_json(random, json);
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
  if (random.one_in(10)) mutate_bytes(random, text);
  write_file(index, text);
  const run::SafetensorsFile read(run::weight_files(index));
  const std::string weight = read.find("fc.weight") ? read.read(*read.find("fc.weight")) : "abcdefgh";
  return weight == "abcdefgh" ? "" : "a shard gives other bytes than were written";
}

}  // namespace

std::string check_runtime_document(Random& random, const std::filesystem::path& folder) {
  switch (random.below(5)) {
    case 0: return check_report(random, folder);
    case 1: return check_data_files(random, folder);
    case 2: return check_shards(random, folder);
    case 3: return check_manifest(random, folder);
    default: return check_safetensors(random, folder);
  }
}

}  // namespace pp::fuzz
