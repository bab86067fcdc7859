// --buddy on several hosts, which are ranks here that have other names and other folders.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "librun/checkpoint/checkpoint_folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"

namespace buddy_hosts_test {

using namespace pp;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kHosts{"a", "b", "c"};

plan::Plan stages(int count) {
  return make_plan({.model = test::mlp(3), .cuts = count == 3 ? std::vector{1, 3} : std::vector{2}});
}

/// A training on hosts, a rank each: the disk is shared, memory is not.
class Fleet {
 public:
  Fleet() {
    options_.checkpoint = options_.resume = disk();
    options_.save_weights = folder_.path() / "weights.safetensors";
  }

  fs::path disk() const { return folder_.path() / "disk"; }
  fs::path memory(const std::string& host) const { return folder_.path() / ("memory-" + host); }
  fs::path weights() const { return options_.save_weights; }

  std::vector<test::Ending> train(const std::vector<std::string>& hosts, const run::RunOptions& more,
                                  const test::Change& change = {}, run::Observer* observer = nullptr) {
    run::RunOptions all = more;
    all.checkpoint = options_.checkpoint;
    all.resume = options_.resume;
    all.save_weights = options_.save_weights;
    const int ranks = static_cast<int>(hosts.size());
    const auto place = [&](test::ThreadPeers& peers, plan::Plan& plan, run::RunOptions& mine) {
      peers.on = hosts[static_cast<std::size_t>(peers.rank())];
      mine.buddy = memory(peers.on);
      if (change) change(peers, plan, mine);
    };
    return test::train(ranks, stages(ranks), all, place, nullptr, observer);
  }

  /// Until all hosts have a checkpoint of step 6 or later; then the last rank falls silent.
  void lose_a_rank(run::RunOptions options) {
    options.steps = 1'000'000;
    options.stall_timeout = Seconds(0.5);
    std::atomic<test::ThreadPeers*> last = nullptr;
    std::thread killer([&] {
      for (const std::string& host : kHosts)
        while (newest(memory(host)) < 6) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      last.load()->mute = true;
    });
    const auto endings = train(kHosts, options, [&](test::ThreadPeers& peers, plan::Plan&, run::RunOptions&) {
      if (peers.rank() == 2) last = &peers;
    });
    killer.join();
    REQUIRE(endings[0].error.find("rank 2 (workers 2) has been silent for ") == 0);
  }

  static run::Step newest(const fs::path& folder) {
    const auto all = run::checkpoints_of(folder);
    return all.empty() ? -1 : run::step_of_checkpoint(all.front());
  }

 private:
  TestFolder folder_;
  run::RunOptions options_;
};

run::RunOptions options_for(std::int64_t steps) {
  run::RunOptions options = test::synthetic_options(steps);
  options.evaluate = false;
  options.checkpoint_steps = 2;
  return options;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// Weights that nobody disturbed.
void check_weights(const Fleet& fleet, std::int64_t steps) {
  run::RunOptions alone = test::synthetic_options(steps);
  alone.evaluate = false;
  CHECK(test::first_difference(test::train_alone(stages(3), alone).tensors,
                               run::read_weights(fleet.weights())) == "");
}

}  // namespace

TEST_SUITE("librun/buddy_hosts") {
  TEST_CASE("checkpoints in the memory of three hosts are copied to the disk that they share") {
    Fleet fleet;
    run::RunOptions options = options_for(10);
    options.copy_steps = 4;
    const std::vector<test::Ending> endings = fleet.train(kHosts, options);
    for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
    CHECK(endings[0].report->checkpoints->written == 5);
    CHECK(endings[0].report->checkpoints->copies == 3);  // of steps 4, 8 and 10
    CHECK(run::find_checkpoint(fleet.disk()).manifest.position.step == 10);
    CHECK(names_in(fleet.disk()) == std::set<std::string>{".lock", "step-10", "step-4", "step-8"});
    for (const std::string& host : kHosts)
      CHECK(names_in(fleet.memory(host)) == std::set<std::string>{".lock"});
    check_weights(fleet, 10);
  }

  TEST_CASE("a host is lost with its memory: the others have all parts, and go on from there") {
    Fleet fleet;
    run::RunOptions options = options_for(10);
    options.copy_steps = 1'000'000;
    fleet.lose_a_rank(options);
    const run::Step step = Fleet::newest(fleet.memory("a"));
    // Each has its own two files and those of the host before: of the last one here.
    CHECK(names_in(fleet.memory("a") / ("step-" + std::to_string(step))) ==
          std::set<std::string>{"manifest.json", "optimizer-0.safetensors", "optimizer-2.safetensors",
                                "weights-0.safetensors", "weights-2.safetensors"});
    CHECK(Fleet::newest(fleet.disk()) == -1);
    fs::remove_all(fleet.memory("b"));
    options.steps = step + 6;
    SUBCASE("two hosts share what they have") {
      const std::vector<test::Ending> endings = fleet.train({"a", "c"}, options);
      for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
      CHECK(endings[0].report->resumed->step >= step - 2);
      CHECK(endings[0].report->resumed->step <= step);
      check_weights(fleet, *options.steps);
    }
    SUBCASE("a new host gets everything") {
      const std::vector<test::Ending> endings = fleet.train({"c", "d", "a"}, options);
      for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
      CHECK(endings[0].report->resumed->step >= step - 2);
      check_weights(fleet, *options.steps);
    }
    SUBCASE("what is damaged there is passed over") {
      for (const char* host : {"a", "c"})
        for (const fs::path& path : run::checkpoints_of(fleet.memory(host)))
          fs::remove(path / "weights-2.safetensors");
      const std::vector<test::Ending> endings = fleet.train({"a", "c"}, options);
      for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
      CHECK_FALSE(endings[0].report->resumed.has_value());  // nothing was on disk: it begins anew
      check_weights(fleet, *options.steps);
    }
  }

  TEST_CASE("two hosts are lost: the training goes on from the disk") {
    Fleet fleet;
    run::RunOptions options = options_for(10);
    options.copy_steps = 4;
    fleet.lose_a_rank(options);
    fs::remove_all(fleet.memory("b"));
    fs::remove_all(fleet.memory("c"));
    const run::Step step = Fleet::newest(fleet.disk());
    REQUIRE(step >= 4);
    options.steps = step + 6;
    const std::vector<test::Ending> endings = fleet.train({"a", "d"}, options);
    for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
    CHECK(endings[0].report->resumed->step == step);
    CHECK(endings[0].report->resumed->checkpoint == (fleet.disk() / ("step-" + std::to_string(step))).string());
    check_weights(fleet, *options.steps);
  }

  TEST_CASE("a host whose memory cannot be written is named, and training goes on") {
    // Checkpoints of step 4 and later are made when rank 0 has told that step.
    struct TakesMemory : test::SilentObserver {
      void step(const run::Progress& progress) override {
        if (progress.step == 3) fs::rename(memory, memory.string() + "-taken");
      }
      fs::path memory;
    };
    Fleet fleet;
    TakesMemory observer;
    observer.memory = fleet.memory("b");
    const std::vector<test::Ending> endings = fleet.train(kHosts, options_for(8), {}, &observer);
    for (const test::Ending& ending : endings) REQUIRE(ending.error == "");
    CHECK(endings[0].report->exit_reason == "not_written");
    REQUIRE(observer.warnings.size() >= 2);  // the first: there is nothing to resume
    CHECK(observer.warnings[1].find("rank 1: " + observer.memory.string()) != std::string::npos);
    check_weights(fleet, 8);
  }
}

}  // namespace buddy_hosts_test
