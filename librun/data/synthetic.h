// Made-up samples with something to learn, for any model whose inputs and targets are floating or integer
// tensors.
#pragma once

#include <cstdint>

#include "librun/data/dataset.h"

namespace pp::run {

/// `samples` samples drawn from `seed`. Every sample has a hidden class (of at most 16). A floating input is
/// the class's prototype plus noise; an integer input is a sequence in which a token mostly follows from the
/// one before by a fixed rule, begun with the class. An integer target of an integer input's shape is that
/// sequence moved on by one, modulo the classes where they are fewer; a single integer target is the class; a
/// floating target is a prototype of its own. Training and test set share the prototypes and differ in the
/// samples.
///
/// With a drift they are a stream: 8 samples after each other have one class, and the rule turns by so much of
/// a whole turn from sample to sample: prototypes towards others and back, the step between tokens by that
/// share of the vocabulary.
MemoryDataset make_synthetic(const ResolvedModel& model, std::int64_t samples, std::uint64_t seed,
                             Subset subset, DType dtype, double drift = 0);

}  // namespace pp::run
