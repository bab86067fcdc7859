// The sum of a group's vectors by slices: each slice's owner gets the others' parts, adds them in the order of
// the members, and may give the sum to the others. Once for every way between the members.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "librun/transport/collectives.h"
#include "librun/transport/slices.h"

namespace pp::run {

/// ((p0 + p1) + p2) + ..., in place of p0; `part(i)` is what member i has.
template <class Part>
at::Tensor add_in_order(std::size_t members, Part&& part) {
  at::Tensor sum = part(0);
  for (std::size_t i = 1; i < members; ++i) sum.add_(part(i));
  return sum;
}

/// Each slice from its owner to all others. `line` is one member's end: me(), size(), and send(to, tensor) and
/// receive(from, tensor), which return before the tensor has gone or come; those of two members come in order.
template <class Line>
void hand_out(Line&& line, const at::Tensor& flat, std::span<const Slice> slices) {
  for (const Slice& slice : slices)
    if (slice.owner != line.me()) line.receive(slice.owner, part_of(flat, slice));
  for (const Slice& slice : slices)
    for (std::size_t i = 0; slice.owner == line.me() && i < line.size(); ++i)
      if (i != slice.owner) line.send(i, part_of(flat, slice));
}

/// One member's part in a sum: collect(), add() when all has come, then perhaps hand_out().
class SliceSum {
 public:
  /// `mine`: complete, all of its memory in one piece. Empty slices count as none.
  SliceSum(const at::Tensor& mine, std::vector<Slice> slices)
      : flat_(mine.view(-1)), slices_(std::move(slices)) {
    std::erase_if(slices_, [](const Slice& slice) { return slice.length() == 0; });
  }

  /// Parts of the others' slices go to them, theirs of this member's come. Needs the memory of the latter.
  template <class Line>
  void collect(Line&& line) {
    me_ = line.me();
    for (const Slice& slice : slices_) {
      if (slice.owner != me_) continue;
      std::vector<at::Tensor>& parts = parts_.emplace_back(line.size());
      parts[me_] = part_of(flat_, slice);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i == me_) continue;
        parts[i] = at::empty_like(parts[me_]);
        line.receive(i, parts[i]);
      }
    }
    for (const Slice& slice : slices_)
      if (slice.owner != me_) line.send(slice.owner, part_of(flat_, slice));
  }

  void add() {
    for (std::vector<at::Tensor>& parts : parts_) {
      const at::Tensor sum = add_in_order(parts.size(), [&](std::size_t i) { return parts[i]; });
      if (me_ != 0) parts[me_].copy_(sum);
    }
  }

  template <class Line>
  void hand_out(Line&& line) const {
    run::hand_out(line, flat_, slices_);
  }

 private:
  at::Tensor flat_;
  std::vector<Slice> slices_;
  std::size_t me_ = 0;
  std::vector<std::vector<at::Tensor>> parts_;  ///< of each slice of this member's, by member
};

}  // namespace pp::run
