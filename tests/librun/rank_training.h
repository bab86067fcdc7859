// Trainings on ranks that are threads.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/checkpoint/weights.h"
#include "librun/run.h"
#include "tests/librun/folder.h"
#include "tests/librun/reference.h"
#include "tests/support/schema.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

namespace pp::test {

/// What became of each rank.
struct Ending {
  std::optional<run::RunReport> report;
  std::string error;
  bool said_elsewhere = false;
};

using Change = std::function<void(ThreadPeers&, plan::Plan&, run::RunOptions&)>;

/// Twelve steps of synthetic samples.
inline run::RunOptions rank_options(const plan::Plan& plan) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 12 * plan.training.mini_batch;
  options.steps = 12;
  options.learning_rate = 0.05;
  options.seed = 7;
  return options;
}

/// `first`: rank 0's observer; the others have silent ones.
inline std::vector<Ending> train(int ranks, const plan::Plan& plan, const run::RunOptions& options,
                                 const Change& change = {}, Wires* wires = nullptr,
                                 run::Observer* first = nullptr) {
  std::vector<Ending> endings(static_cast<std::size_t>(ranks));
  Wires own(ranks);
  on_ranks(wires ? *wires : own, [&](ThreadPeers& peers) {
    Ending& ending = endings[static_cast<std::size_t>(peers.rank())];
    pp::test::SilentObserver silent;
    run::Observer& observer = first && peers.rank() == 0 ? *first : silent;
    plan::Plan mine = plan;
    run::RunOptions settings = options;
    if (change) change(peers, mine, settings);
    try {
      ending.report = run::run_together(peers, mine, settings, observer, [] { return false; });
    } catch (const run::SaidElsewhere& error) {
      ending.said_elsewhere = true;
      ending.error = error.what();
    } catch (const Error& error) {
      ending.error = error.what();
    }
  });
  return endings;
}

inline pp::test::Run run_on(int ranks, const plan::Plan& plan, run::RunOptions options) {
  const TestFolder folder;
  options.save_weights = folder.path() / "weights.safetensors";
  std::vector<Ending> endings = train(ranks, plan, options);
  for (const Ending& ending : endings) REQUIRE(ending.error == "");
  REQUIRE(schema_error("report", run::to_json(*endings.front().report)) == "");
  return {std::move(*endings.front().report), run::read_weights(options.save_weights)};
}

}  // namespace pp::test
