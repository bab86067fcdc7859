#include "librun/checkpoint/checkpoint_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"
#include "tests/support/schema.h"

namespace checkpoint_folder_test {

using namespace pp;
using namespace pp::run;
namespace fs = std::filesystem;

namespace {

// Of epochs with four steps.
Manifest manifest_of(Step step) {
  Manifest manifest;
  manifest.position = {.step = step,
                       .epoch = static_cast<int>(step / 4),
                       .epoch_steps = step % 4,
                       .epoch_loss = 0.1 * static_cast<double>(step % 4)};
  manifest.identity = {.model_hash = "sha256:m",
                       .dtype = "float32",
                       .optimizer = "sgd",
                       .samples = 32,
                       .mini_batch = 8,
                       .steps_per_epoch = 4};
  manifest.seed = ~std::uint64_t{0};
  manifest.micro_batches = 2;
  manifest.plan_hash = "sha256:p";
  manifest.settings = {{"learning_rate", 0.05}, {"shuffle", true}, {"lr_schedule", std::string("constant")}};
  return manifest;
}

std::int64_t write(CheckpointFolder& folder, Step step) {
  const std::string bytes = "weights of " + std::string(1, static_cast<char>('a' + step));  // 12 bytes
  Manifest manifest = manifest_of(step);
  manifest.parts =
      write_parts(folder.path(), step, {{"weights.safetensors", {{"w", {{3}, DType::float32}, bytes}}}});
  return folder.commit(manifest, step);
}

std::set<std::string> names(const fs::path& folder) {
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename().string());
  all.erase(".lock");
  return all;
}

void damage(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  write_file(file, bytes);
}

template <class Call>
std::string refusal(Call&& call, ErrorKind kind) {
  return pp::test::error_of([&] { call(); }, kind);
}

}  // namespace

TEST_SUITE("librun/checkpoint/checkpoint_folder") {
  TEST_CASE("a manifest from before epoch_samples: every finished step of the epoch counts in full") {
    Manifest manifest = manifest_of(7);    // three of four steps of 8 samples
    manifest.position.epoch_samples = 16;  // one was skipped
    Json json = to_json(manifest);
    CHECK(parse_manifest(dump_json(json)) == manifest);
    json["version"] = 1;
    json["position"].erase("epoch_samples");
    json.erase("hash");  // older still
    CHECK(parse_manifest(dump_json(json)).position.epoch_samples == 24);
    CHECK(pp::test::schema_error("checkpoint", json) == "");
  }

  TEST_CASE("parts of version 1 have no owners: they are spread over the ranks; version 2 says all") {
    Manifest manifest = manifest_of(4);
    manifest.parts = {{"weights-0.safetensors", 12, "sha256:x", 0},
                      {"weights-3.safetensors", 12, "sha256:y", 3}};
    Json json = to_json(manifest);
    CHECK(json["version"] == 2);
    CHECK(parse_manifest(dump_json(json)) == manifest);
    const auto refused = [](Json changed, const char* pointer) {
      const Json::json_pointer place(pointer);
      changed[place.parent_pointer()].erase(place.back());
      return refusal([&] { parse_manifest(changed.dump()); }, ErrorKind::data);
    };
    for (const char* const pointer : {"/parts/0/owner", "/position/epoch_samples", "/hash"})
      CHECK(refused(json, pointer).find("missing") != std::string::npos);
    json["version"] = 1;
    json.erase("hash");
    for (Json& part : json["parts"]) part.erase("owner");
    const std::vector<CheckpointPart> parts = parse_manifest(json.dump()).parts;
    CHECK(parts[0].owner == 0);
    CHECK(parts[1].owner == 1);
  }

  TEST_CASE("a manifest comes back as it was written") {
    Manifest manifest = manifest_of(7);
    manifest.parts = {{"weights.safetensors", 12, "sha256:x"}};
    CHECK((parse_manifest(dump_json(to_json(manifest))) == manifest));
    manifest.position.loss_scale = {32768, 17};
    manifest.position.evaluated = {{.step = 6, .best_loss = -0.5, .best_step = 4, .since_best = 1}};
    CHECK((parse_manifest(dump_json(to_json(manifest))) == manifest));
  }

  TEST_CASE("a manifest that contradicts itself or leaves its folder is refused") {
    const auto refused = [](const char* pointer, const Json& value) {
      Manifest manifest = manifest_of(7);
      manifest.parts = {{"weights.safetensors", 12, "sha256:x"}};
      Json json = to_json(manifest);
      json[Json::json_pointer(pointer)] = value;
      return refusal([&] { parse_manifest(json.dump()); }, ErrorKind::data);
    };
    CHECK(refused("/position/step", 8) ==
          "/position: step 8 is not step 3 of epoch 1 when epochs have 4 steps");
    CHECK(refused("/position/epoch_steps", 4) ==
          "/position: step 7 is not step 4 of epoch 1 when epochs have 4 steps");
    CHECK(refused("/parts/0/file", "../weights.safetensors") ==
          "/parts/0/file: \"../weights.safetensors\" is not the name of a file in the checkpoint's folder");
    CHECK(refused("/training/steps_per_epoch", 0).starts_with("/training/steps_per_epoch"));
    CHECK(refused("/format", "pp.report").starts_with("/format"));
    // What contradicts nothing is seen by the manifest's own hash.
    CHECK(refused("/seed", 3) ==
          "/hash: is not that of the manifest, which has been changed; use another checkpoint");
  }

  TEST_CASE("another model, optimizer, type, data set or mini-batch is refused by name") {
    const TrainingIdentity was = manifest_of(0).identity;
    const auto refused = [&](auto change) {
      TrainingIdentity is = was;
      change(is);
      return refusal([&] { check_identity(was, is); }, ErrorKind::data);
    };
    CHECK(refused([](auto&) {}) == "");
    CHECK(refused([](auto& is) { is.model_hash = "sha256:n"; }) ==
          "the checkpoint is of another model (hash sha256:m, the plan's model has sha256:n); plan the same "
          "model");
    CHECK(refused([](auto& is) {
            is.optimizer = "adamw";
          }).starts_with("the checkpoint has the optimizer sgd, this training adamw; plan with the same"));
    CHECK(refused([](auto& is) {
            is.dtype = "float64";
          }).starts_with("the checkpoint has numbers of type float32"));
    CHECK(refused([](auto& is) {
            is.samples = 40;
          }).starts_with("the checkpoint has epochs of samples: 32, this training 40; give the same data"));
    CHECK(refused([](auto& is) {
            is.mini_batch = 16;
          }).starts_with("the checkpoint has mini_batch = 8, this training 16"));
  }

  TEST_CASE("what differs and changes the training is listed, what only lengthens it is not") {
    const Manifest was = manifest_of(4);
    Manifest is = was;
    is.settings["steps"] = std::int64_t{80};
    CHECK(differences(was, is).empty());
    is.seed = 3;
    is.settings["learning_rate"] = 0.1;
    is.settings["clip_norm"] = 1.5;
    CHECK(differences(was, is) == std::vector<std::string>{"seed 3 (was 18446744073709551615)",
                                                           "clip_norm 1.5 (was not given)",
                                                           "learning_rate 0.1 (was 0.05)"});
  }

  TEST_CASE("the newest checkpoints are kept, and the newest one is found") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 2, std::nullopt);
    for (const Step step : {9, 10, 11}) CHECK(write(folder, step) > 12);
    CHECK(names(path) == std::set<std::string>{"step-10", "step-11"});
    CHECK(names(path / "step-11") == std::set<std::string>{"manifest.json", "weights.safetensors"});
    const FoundCheckpoint found = find_checkpoint(path);
    CHECK(found.folder == path / "step-11");
    CHECK(found.skipped.empty());
    CHECK(found.manifest.position == manifest_of(11).position);
    REQUIRE(found.manifest.parts.size() == 1);
    CHECK(found.manifest.parts[0].bytes ==
          static_cast<std::int64_t>(fs::file_size(path / "step-11/weights.safetensors")));
    CHECK(find_checkpoint(path / "step-10").manifest.position.step == 10);
  }

  TEST_CASE("who keeps what was checked loads these bytes, whatever becomes of the files") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 9, std::nullopt);
    for (const Step step : {1, 2, 3}) write(folder, step);
    damage(path / "step-3/weights.safetensors");
    CHECK(find_checkpoint(path).read.empty());
    const FoundCheckpoint found = find_checkpoint(path, {.keep = true});
    CHECK(found.skipped.size() == 1);
    const fs::path part = path / "step-2/weights.safetensors";
    REQUIRE(found.read.size() == 1);  // nothing of the one that was passed over
    CHECK(found.read.begin()->first == part);
    fs::remove(part);
    const SafetensorsFile file(files_of(found, kWeights), found.read);
    const SafetensorsFile::Entry& entry = *file.find("w");
    CHECK(file.read(entry) == "weights of c");
    CHECK(std::string(file.held(entry).get(), 12) == "weights of c");
  }

  TEST_CASE("a damaged, cut, unlisted or foreign checkpoint is skipped with its reason") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 9, std::nullopt);
    for (Step step = 1; step <= 6; ++step) write(folder, step);
    damage(path / "step-6/weights.safetensors");
    fs::resize_file(path / "step-5/weights.safetensors", 30);
    fs::remove(path / "step-4/weights.safetensors");
    write_file(path / "step-3/manifest.json", "{");
    fs::rename(path / "step-1", path / "step-8");  // is of another step
    const FoundCheckpoint found = find_checkpoint(path);
    CHECK(found.folder == path / "step-2");
    REQUIRE(found.skipped.size() == 5);
    CHECK(found.skipped[0] == (path / "step-8/manifest.json").string() + ": is of step 1, not of its folder");
    CHECK(found.skipped[1] ==
          (path / "step-6/weights.safetensors").string() + ": its checksum is not the one of the manifest");
    CHECK(found.skipped[2].starts_with((path / "step-5/weights.safetensors").string() +
                                       ": 30 bytes, the manifest"));
    CHECK(found.skipped[3] == (path / "step-4/weights.safetensors").string() + ": no such file");
    CHECK(found.skipped[4].starts_with((path / "step-3/manifest.json").string()));
  }

  // A pipe that nobody writes would be waited for, /dev/zero has no end.
  TEST_CASE("a part or a manifest that is no plain file is skipped with its reason") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 9, std::nullopt);
    for (Step step = 1; step <= 4; ++step) write(folder, step);
    const auto replace = [&](const std::string& file, auto&& make) {
      fs::remove(path / file);
      make(path / file);
    };
    replace("step-4/weights.safetensors", [](const fs::path& p) { REQUIRE(mkfifo(p.c_str(), 0600) == 0); });
    replace("step-3/weights.safetensors", [](const fs::path& p) { fs::create_symlink("/dev/zero", p); });
    replace("step-2/manifest.json", [](const fs::path& p) { REQUIRE(mkfifo(p.c_str(), 0600) == 0); });
    const FoundCheckpoint found = find_checkpoint(path);
    CHECK(found.folder == path / "step-1");
    REQUIRE(found.skipped.size() == 3);
    for (const std::string& reason : found.skipped) CHECK(reason.ends_with(": not a plain file"));
  }

  TEST_CASE("a rank reads the parts that it owns; all pass over what one of them cannot read") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 9, std::nullopt);
    for (const Step step : {4, 5}) {
      Manifest manifest = manifest_of(step);
      for (const int owner : {0, 1, 2}) {
        const std::string name = "w" + std::to_string(owner);
        const PartContent part{part_file(kWeights, owner), {{name, {{3}, DType::float32}, "twelve bytes"}}};
        manifest.parts.push_back(write_parts(path, step, {part}, owner).front());
      }
      folder.commit(manifest, step);
    }
    damage(path / "step-5/weights-2.safetensors");
    const auto newest_of = [&](int rank, int ranks) {
      return find_checkpoint(path, {.rank = rank, .ranks = ranks}).manifest.position.step;
    };
    CHECK(newest_of(0, 3) == 5);
    CHECK(newest_of(1, 3) == 5);
    CHECK(newest_of(2, 3) == 4);
    CHECK(newest_of(0, 2) == 4);  // 2 modulo 2
    const FoundCheckpoint found =
        find_checkpoint(path, {0, 3, [](const std::string& mine) {
                                 CHECK(mine.empty());
                                 static bool first = true;
                                 return std::string(std::exchange(first, false) ? "why" : "");
                               }});
    CHECK(found.folder == path / "step-4");
    CHECK(found.skipped == std::vector<std::string>{"why"});
  }

  TEST_CASE("a folder has one writer, and is refused at once where nothing can be written") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    std::array<char, 256> host{};
    REQUIRE(gethostname(host.data(), host.size() - 1) == 0);
    {
      CheckpointFolder first(path, 9, std::nullopt);
      fs::create_directory(path / ".unfinished-step-4");
      CHECK(refusal([&] { CheckpointFolder(path, 9, std::nullopt, "--checkpoint", Seconds(0.1)); },
                    ErrorKind::usage) ==
            path.string() + ": another run (process " + std::to_string(getpid()) + " on " + host.data() +
                ") writes its checkpoints here; wait for its end, or give another folder for --checkpoint");
      CHECK(fs::exists(path / ".unfinished-step-4"));  // of the run that goes on
    }
    CHECK(refusal([&] { CheckpointFolder(path, 9, std::nullopt); }, ErrorKind::usage) == "");
    CHECK(refusal([&] { CheckpointFolder("/proc/self/fdinfo", 9, std::nullopt, "--elsewhere"); },
                  ErrorKind::usage)
              .ends_with("; give a folder for --elsewhere that can"));
    CHECK(refusal([&] { CheckpointFolder("/proc/self/fdinfo", 9, std::nullopt); }, ErrorKind::usage)
              .starts_with("/proc/self/fdinfo: cannot be written: "));
  }

  TEST_CASE("a folder that cannot be looked into is refused with its name") {
    const TestFolder test;
    const fs::path loop = test.path() / "loop";
    fs::create_symlink(loop, loop);
    CHECK(refusal([&] { find_checkpoint(loop); }, ErrorKind::usage) ==
          loop.string() + ": cannot be read: Too many levels of symbolic links");
  }

  TEST_CASE("a writer that fails leaves what the others have written") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 9, std::nullopt);
    const PartContent mine{"weights-0.safetensors", {{"w", {{3}, DType::float32}, "twelve bytes"}}};
    write_parts(path, 4, {mine});
    fs::create_directories(path / ".unfinished-step-4/weights-1.safetensors");
    const PartContent others{"weights-1.safetensors", {{"v", {{3}, DType::float32}, "twelve bytes"}}};
    CHECK(refusal([&] { write_parts(path, 4, {others}); }, ErrorKind::run) != "");
    CHECK(fs::exists(path / ".unfinished-step-4/weights-0.safetensors"));
    folder.discard(4);
    CHECK_FALSE(fs::exists(path / ".unfinished-step-4"));
  }

  TEST_CASE("without a whole checkpoint all reasons are said") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CHECK(refusal([&] { find_checkpoint(path); }, ErrorKind::data) ==
          path.string() + ": no checkpoint to go on from; give the folder of --checkpoint");
    CheckpointFolder folder(path, 2, std::nullopt);
    write(folder, 3);
    damage(path / "step-3/weights.safetensors");
    CHECK(refusal([&] { find_checkpoint(path); }, ErrorKind::data).find("its checksum") != std::string::npos);
  }

  TEST_CASE("a training that begins does not mix its checkpoints with another one's") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    {
      CheckpointFolder first(path, 9, std::nullopt);
      for (const Step step : {4, 8, 12}) write(first, step);
    }
    CHECK(refusal([&] { CheckpointFolder(path, 9, std::nullopt); }, ErrorKind::usage) ==
          path.string() + ": has a checkpoint of step 12; go on from it with --resume " + path.string() +
              ", or give another folder for --checkpoint");
    CHECK(
        refusal([&] { CheckpointFolder(path, 9, 8); }, ErrorKind::usage)
            .starts_with(path.string() + ": has a checkpoint of step 12, later than step 8, which is resumed"));
    // A broken one is set aside: the training makes that step again.
    damage(path / "step-12/weights.safetensors");
    fs::create_directory(path / ".unfinished-step-16");
    CheckpointFolder second(path, 9, 8);
    CHECK(names(path) == std::set<std::string>{"step-4", "step-8", "broken-step-12"});
    write(second, 12);
    CHECK(find_checkpoint(path).folder == path / "step-12");
  }

  TEST_CASE("a checkpoint that cannot be written leaves the ones before") {
    const TestFolder test;
    const fs::path path = test.path() / "ck";
    CheckpointFolder folder(path, 2, std::nullopt);
    write(folder, 1);
    fs::create_directories(path / "step-2/in-the-way");
    CHECK(refusal([&] { write(folder, 2); }, ErrorKind::run).starts_with((path / "step-2").string()));
    CHECK(names(path) == std::set<std::string>{"step-1", "step-2"});
    CHECK(find_checkpoint(path).folder == path / "step-1");
    fs::remove_all(path);
    CHECK(refusal([&] { write(folder, 3); }, ErrorKind::run).find("cannot be written") != std::string::npos);
  }
}

}  // namespace checkpoint_folder_test
