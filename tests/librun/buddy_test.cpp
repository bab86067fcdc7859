// --buddy: checkpoints in memory, of which some are copied to disk.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace buddy_test {

using namespace pp;
namespace fs = std::filesystem;

namespace {

run::RunOptions options_for(std::int64_t steps) {
  run::RunOptions options = test::synthetic_options(steps);
  options.evaluate = false;
  return options;
}

plan::Plan two_stages() { return make_plan({.model = test::mlp(2), .cuts = {2}}); }

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::path& path : run::checkpoints_of(folder)) names.insert(path.filename().string());
  return names;
}

std::string bytes_of(const fs::path& checkpoint) {
  return read_file(checkpoint / "weights.safetensors") + read_file(checkpoint / "optimizer.safetensors") +
         read_file(checkpoint / "manifest.json");
}

}  // namespace

TEST_SUITE("librun/buddy") {
  TEST_CASE("every checkpoint is in memory, one in three is copied, and at the end all is on disk") {
    const TestFolder folder;
    run::RunOptions options = options_for(20);
    options.checkpoint = folder.path() / "disk";
    options.checkpoint_steps = 2;
    options.buddy = folder.path() / "memory";
    options.copy_steps = 6;
    const test::Run run = test::run_plan(two_stages(), options);
    REQUIRE(run.report.checkpoints.has_value());
    CHECK(run.report.checkpoints->written == 10);
    CHECK(run.report.checkpoints->copies == 4);  // of steps 6, 12, 18 and 20
    CHECK(names_in(options.checkpoint) == std::set<std::string>{"step-12", "step-18", "step-20"});
    CHECK(names_in(options.buddy).empty());

    run::RunOptions plain = options_for(20);
    plain.checkpoint = folder.path() / "plain";
    plain.checkpoint_steps = 2;
    test::run_plan(two_stages(), plain);
    CHECK(bytes_of(options.checkpoint / "step-18") == bytes_of(plain.checkpoint / "step-18"));
  }

  TEST_CASE("a training goes on from memory where that is newer, and from disk where it is damaged") {
    const TestFolder folder;
    const fs::path disk = folder.path() / "disk", memory = folder.path() / "memory";
    run::RunOptions options = options_for(4);
    options.checkpoint = disk;
    test::run_plan(two_stages(), options);
    options = options_for(6);
    options.resume = disk;
    options.checkpoint = memory;
    test::run_plan(two_stages(), options);
    REQUIRE(names_in(memory) == std::set<std::string>{"step-6"});

    const auto go_on = [&](std::int64_t steps) {
      run::RunOptions all = options_for(steps);
      all.checkpoint = all.resume = disk;
      all.buddy = memory;
      all.save_weights = folder.path() / "weights.safetensors";
      test::SilentObserver observer;
      const run::RunReport report = test::run_checked(two_stages(), all, observer);
      CHECK(test::first_difference(test::train_alone(two_stages(), options_for(steps)).tensors,
                                   run::read_weights(all.save_weights)) == "");
      REQUIRE(report.resumed.has_value());
      return std::pair(report.resumed->step, observer.warnings);
    };
    fs::copy(memory, folder.path() / "spare", fs::copy_options::recursive);
    CHECK(go_on(8).first == 6);
    CHECK(names_in(memory).empty());
    CHECK(names_in(disk).count("step-8") == 1);

    fs::remove_all(memory);
    fs::remove_all(disk / "step-8");
    fs::copy(folder.path() / "spare", memory, fs::copy_options::recursive);
    fs::resize_file(memory / "step-6" / "weights.safetensors", 17);
    const auto [step, warnings] = go_on(8);
    CHECK(step == 4);
    CHECK(std::ranges::any_of(warnings, [&](const std::string& text) {
      return text.find((memory / "step-6" / "weights.safetensors").string() + ": 17 bytes") !=
             std::string::npos;
    }));
    // Memory alone, as it is before the first copy.
    fs::remove_all(memory);
    fs::remove_all(disk);
    fs::copy(folder.path() / "spare", memory, fs::copy_options::recursive);
    CHECK(go_on(8).first == 6);
  }

  TEST_CASE("a training that ended before its last copy is copied when it is started again") {
    const TestFolder folder;
    run::RunOptions options = options_for(6);
    options.checkpoint = folder.path() / "memory";
    test::run_plan(two_stages(), options);
    options.buddy = options.checkpoint;
    options.checkpoint = options.resume = folder.path() / "disk";
    const test::Run run = test::run_plan(two_stages(), options);
    CHECK(run.report.steps == 0);
    CHECK(names_in(options.checkpoint) == std::set<std::string>{"step-6"});
    CHECK(names_in(options.buddy).empty());
  }

  TEST_CASE("it is refused without a folder for copies, and where both are one") {
    const TestFolder folder;
    run::RunOptions options = options_for(2);
    options.buddy = folder.path() / "memory";
    const auto refusal = [&]() -> std::string {
      try {
        test::run_plan(two_stages(), options);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
        return error.what();
      }
      return "accepted";
    };
    CHECK(refusal() ==
          "--buddy keeps checkpoints in memory; give a folder for copies of some of them with --checkpoint");
    options.checkpoint = options.buddy / "../memory";
    CHECK(refusal() == "--buddy " + options.buddy.string() +
                           ": is the folder of --checkpoint, which keeps the copies; give one in memory "
                           "(/dev/shm/NAME)");
  }
}

}  // namespace buddy_test
