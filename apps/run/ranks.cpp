#include "apps/run/ranks.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>

#include "apps/cli/ranks.h"
#include "apps/cli/terminal_text.h"
#include "libprofile/device/build.h"
#include "libprofile/device/machine.h"
#include "librun/transport/backends.h"
#include "librun/transport/mailbox.h"

namespace pp::run_tool {

void Ranks::join(Seconds patience) {
  if (!cli::launched_with_ranks()) return;
  cli::set_up_mpi();
  const Bytes before = profile::process_memory();
  peers_ = run::join_mpi_peers(cli::launched_as(), patience);
  joining_ = profile::process_memory() - before;
}

run::RunReport Ranks::train(const plan::Plan& plan, const run::RunOptions& options, run::Observer& observer,
                            const std::function<bool()>& interrupted) {
  if (!peers_) return run::run(plan, options, observer, interrupted);
  run::RunReport report;
  together([&](run::Peers& peers) { report = run::run_together(peers, plan, options, observer, interrupted); });
  return report;
}

run::WarmReport Ranks::warm(const plan::Plan& plan, const run::RunOptions& options) {
  if (!peers_) return run::warm(plan, options);
  run::WarmReport report;
  together([&](run::Peers& peers) { report = run::warm_together(peers, plan, options, joining_); });
  return report;
}

void Ranks::together(const std::function<void(run::Peers&)>& work) {
  torn_ = true;
  try {
    work(*peers_);
    torn_ = false;
  } catch (const run::LostRank&) {
    speaks_ = true;
    throw;
  } catch (const run::NotBegun&) {
    torn_ = false;
    throw;
  } catch (const run::SaidElsewhere& error) {
    torn_ = error.begun();
    reason_ = error.what();
    throw;
  }
}

int Ranks::leave(int exit_code) {
  if (!peers_) return exit_code;
  if (torn_) {
    // Rank 0 ends all of them when it has said why. It may still be far from reading that.
    constexpr std::chrono::seconds kGrace(10);
    std::fflush(nullptr);
    if (!first() && !speaks_) {
      std::this_thread::sleep_for(kGrace);
      std::cerr << "pp-run: error: " +
                       cli::escaped("rank " + std::to_string(peers_->rank()) + ": " + reason_,
                                    cli::Keep::lines) +
                       "\n";
    }
    peers_->abort(exit_code);
  }
  peers_.reset();
  return exit_code;
}

std::vector<std::pair<std::string, std::string>> backends() {
  return {{"LibTorch", profile::libtorch_version()},
          {"CUDA", profile::cuda_version()},
          {"MPI", run::mpi_library()},
          {"NCCL", run::nccl_library()}};
}

}  // namespace pp::run_tool
