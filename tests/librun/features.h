// The features that a training may combine, as a table, and those that exclude each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "librun/options/run_options.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"

namespace pp::test {

struct Kind {
  std::string schedule;
  int places = 2;
  int chunks = 1;  ///< stages of a place
  int micro_batches = 4;
  bool uneven = false;  ///< stages may have other numbers of replicas than their neighbours
};

/// Three updates an epoch, or twelve of a stream, and what its features make of it.
struct Training {
  PlanSpec spec;
  pp::run::RunOptions options;
  Kind kind;
  int ranks = 1;  ///< 0: one a worker
  bool resumed = false, elsewhere = false;
  std::uint64_t draw = 0;  ///< decides boundaries and numbers of micro-batches; 0: even ones
};

struct Feature {
  std::string name;
  std::function<void(Training&)> give = [](Training&) {};
  bool book = true;  ///< one device can be trained by hand with it
};

/// The first feature of an axis is the plain one.
struct Axis {
  std::string name;
  std::vector<Feature> features;
};

const std::vector<Axis>& axes();

using Row = std::vector<std::size_t>;  ///< the number of a feature of each axis
const std::string& name_in(std::size_t axis, std::size_t feature);
std::string text_of(const Row& row);

using Place = std::pair<std::size_t, std::size_t>;  ///< an axis, a feature
using Pair = std::pair<Place, Place>;               ///< the earlier axis first
std::vector<Pair> all_pairs();

/// Every feature of the one list with every one of the other.
struct Refused {
  std::vector<std::string> ones, others;
  std::string words;
  const char* accepted = nullptr;  ///< why it is not trained here, although it is not refused
};

/// What two features that cannot be combined say of it; null: they are trained together.
const Refused* refused(const Pair& pair);

/// `draws` decides boundaries, numbers of micro-batches and the seed; 0: even ones. `model`: in place of the
/// row's; null: none.
Training training_of(const Row& row, std::uint64_t draws, const pp::ModelGraph* model = nullptr);

bool is_stream(const PlanSpec& spec);
bool shares_weights(const pp::ModelGraph& model);
/// A recomputed forward uses the weights that are predicted for its backward.
bool predicts(const PlanSpec& spec);
/// Without what changes no bit: divided state, recomputation, sums that begin early.
PlanSpec plain(PlanSpec spec);

/// The plans of a training, one after the other; as it is, or as plain as its bits allow.
std::vector<Part> parts_of(const Training& training, bool as_plain);

}  // namespace pp::test
