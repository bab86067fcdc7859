// What a run is before any data is read: plan, options and machine, checked against each other. Torch-free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/model/model_graph.h"
#include "librun/checkpoint/manifest.h"
#include "librun/data/formats.h"
#include "librun/data/order.h"
#include "librun/options/learning_rate.h"
#include "librun/stage/pass_kind.h"
#include "librun/threads/threads.h"
#include "librun/transport/peers.h"
#include "librun/transport/placement.h"
#include "librun/transport/rank_clock.h"

namespace pp::run {

/// How long the run is, in steps.
struct Length {
  Step total = 0;
  EpochShape epoch;
  int epochs() const { return static_cast<int>((total + epoch.steps() - 1) / epoch.steps()); }
  Step first(int index) const { return index * epoch.steps(); }
  /// Steps of an epoch; the last one may be cut short by the run's length.
  Step count(int index) const { return std::min<Step>(epoch.steps(), total - first(index)); }
};

/// Where a training begins, and with what.
struct Start {
  Position position;
  std::vector<std::filesystem::path> weights = {};    ///< files with the parts; none: they are drawn
  std::vector<std::filesystem::path> optimizer = {};  ///< files with the parts; none: from nothing
  ReadFiles read = {};                                ///< those of them that are in memory
  std::filesystem::path resumed = {};                 ///< the checkpoint's folder; empty: none
  std::vector<std::string> warnings = {};
};

/// A checked plan and its options, with all that follows from them before any data is read.
struct Setup {
  ResolvedModel model;
  bool streams = false;  ///< programs are streams: asynchronous
  /// Replicas around a parameter server: mini-batches that one may be ahead of the slowest when it begins with
  /// another.
  Step clock_bound = 0;
  bool clocked = false;  ///< the stream is of frames (PARTIME), which come in the order of the data
  int round = 1;  ///< streams: mini-batches come in multiples of this (least common multiple of the replicas)
  std::optional<DataFiles> files;  ///< of a training; none: synthetic
  std::int64_t test_samples = 0;   ///< 0: no evaluation
  Length length;
  Start start;
  Step evaluate_every = 0;  ///< updates from one evaluation to the next, and one at the end; 0: none
  Step snapshot_every = 0;  ///< updates from checkpoint to checkpoint; 0: none that are counted by steps
  RateSchedule rates;
  /// Per worker: the stages whose passes are recorded as CUDA graphs, with their kinds.
  std::vector<std::map<StageId, std::vector<PassKind>>> recorded;
  std::vector<Device> devices;  ///< per worker
  CoreBinding cores;            ///< per worker
  Placement placement;
  std::optional<RankClock> clock;  ///< rank 0's beside this one; none: they are one
  Peers* peers = nullptr;          ///< the other processes; null: there are none
};

}  // namespace pp::run
