// How trainers without a planner cut a chain into stages: layers balanced by one number each. Every function
// returns the number of layers in each block.
#pragma once

#include <span>
#include <vector>

namespace pp::plan {

/// The largest block is as small as possible; among those the earliest cuts. `blocks` is at most the number of
/// costs, and no block is empty. The exact form of what torchgpipe (Kim et al., arXiv 2004.09910) and GPipe
/// (Huang et al., NeurIPS'19) approximate.
std::vector<int> balance_exactly(std::span<const double> costs, int blocks);

/// Block partition of Barany and Grinberg ("Block Partitions of Sequences", arXiv 1308.2452) as torchgpipe uses
/// it, on costs scaled to 0..1: layers move towards the smallest block until no two blocks differ by more than
/// the largest scaled cost. Not optimal; a block can be empty. As it is used, with size and choice of the
/// largest block out of date, it may go on for ever: no blocks after ten moves per layer and block
/// (PipeDream's gnmt in 19 blocks ends after 148 moves of 18,050).
std::vector<int> block_partition(std::span<const double> costs, int blocks);

/// Lingvo (Shen et al., arXiv 1902.08295): a layer goes where the running share of the total, itself included,
/// points to. A block can be empty.
std::vector<int> lingvo_partition(std::span<const double> costs, int blocks);

}  // namespace pp::plan
