// A replica's side of a training with a parameter server: when it fetches and pushes, and what it does between.
// Of its worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "librun/server/parameter_server.h"
#include "librun/server/server_access.h"
#include "librun/stage/stage.h"

namespace pp::run {

/// The store of the policy, which begins with the stage's weights and what its optimizer remembers.
/// `own_optimizer`: makes one like it.
std::unique_ptr<WeightStore> make_store(
    plan::WeightPolicy policy, Stage& stage, int replicas,
    const std::function<std::unique_ptr<model::Optimizer>()>& own_optimizer);

/// Mini-batches from one fetch, or push, to the next.
struct Periods {
  int fetch = 1;
  int push = 1;
};

/// Downpour's worker (Dean et al., NIPS 2012, algorithm 7.1): in between it goes on from its own weights by
/// plain gradient descent, and adds up what it will push.
class Replica {
 public:
  /// `place`: among the replicas. The server must outlive it.
  Replica(ServerAccess& server, int place, Periods periods)
      : server_(server), place_(place), periods_(periods) {}

  /// Before a forward: fetches when it is due, at the first one of a mini-batch.
  void before_forward(Stage& stage);
  /// In place of the stage's update.
  void update(Stage& stage, double rate);
  /// Behind the last mini-batch of a range: the stage has the weights of all, as every replica's, and the
  /// first one's optimizer what the server's remembers, for a checkpoint.
  void leave(Stage& stage);
  /// No range follows.
  void close() { server_.close(place_); }

 private:
  void begin(Stage& stage);

  ServerAccess& server_;
  int place_;
  Periods periods_;
  bool within_ = false;     ///< a mini-batch
  std::int64_t count_ = 0;  ///< mini-batches since the range began
  FlatTensors sum_;         ///< of the gradients that are not pushed yet; undefined: of none
  double rate_ = 0;         ///< of the last one
};

}  // namespace pp::run
