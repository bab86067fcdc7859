// A search over the boundaries where stages may begin, and no other: what cuts, blocks and shared weights leave
// of the layers. Its partitions and loads are those of the search over layers, bit for bit; a smallest refused
// load may be larger, as loads of stages that no partition has are not among them.
#pragma once

#include <utility>
#include <vector>

#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/pareto.h"

namespace pp::plan {

/// Segments between open boundaries in place of layers. What it is made of must outlive it.
class Contracted final : public StageCost, public ExactMemory {
 public:
  Contracted(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory)
      : cost_(cost), memory_(memory), space_(space) {
    for (int k = 0; k <= space.layers; ++k)
      if (k == 0 || k == space.layers || space.may_cut(k)) open_.push_back(k);
    space_.layers = static_cast<int>(open_.size()) - 1;
    space_.cut_allowed.clear();
  }
  const SearchSpace& space() const { return space_; }
  const ExactMemory* memory() const { return memory_ == nullptr ? nullptr : this; }

  double stage(int begin, int end, DeviceSpan span) const override {
    return cost_.stage(open(begin), open(end), span);
  }
  double cut(int boundary, DeviceSpan span, CutSide side) const override {
    return cost_.cut(open(boundary), span, side);
  }
  bool fits(int begin, int end, DeviceSpan span) const override {
    return cost_.fits(open(begin), open(end), span);
  }
  bool uniform() const override { return cost_.uniform(); }
  bool considers(DeviceSpan span) const override { return cost_.considers(span); }
  bool is_dominated(int replicas) const override { return cost_.is_dominated(replicas); }
  bool may_fall(int replicas) const override { return cost_.may_fall(replicas); }
  double base() const override { return cost_.base(); }
  double passage(int boundary, DeviceSpan span) const override { return cost_.passage(open(boundary), span); }
  double fill(int boundary, DeviceSpan span) const override { return cost_.fill(open(boundary), span); }

  int demand(DeviceSpan span, const Behind& behind) const override { return memory_->demand(span, behind); }
  bool fits(const StageRange& stage, DeviceSpan span, int demand) const override {
    return memory_->fits({open(stage.begin), open(stage.end), stage.replicas}, span, demand);
  }
  bool fits(const Partition& partition) const override { return memory_->fits(of_layers(partition)); }

  /// What a search found, over layers.
  Partition of_layers(Partition partition) const {
    for (StageRange& stage : partition) stage.begin = open(stage.begin), stage.end = open(stage.end);
    return partition;
  }
  double of_layers(double bound) const { return bound; }
  Point of_layers(Point point) const {
    point.partition = of_layers(std::move(point.partition));
    return point;
  }
  PointTest of_layers(PointTest test) const {
    test.point = of_layers(std::move(test.point));
    return test;
  }
  ParetoFront of_layers(ParetoFront front) const {
    for (Point& point : front.points) point = of_layers(std::move(point));
    return front;
  }
  template <class Bottleneck>
  Bottleneck of_layers(Bottleneck found) const {
    found.partition = of_layers(std::move(found.partition));
    return found;
  }

 private:
  int open(int boundary) const { return open_[at(boundary)]; }

  const StageCost& cost_;
  const ExactMemory* memory_;
  SearchSpace space_;
  std::vector<int> open_;  ///< the layer boundary of each
};

/// search(space, cost, memory) over the open boundaries.
template <class Search>
auto contracted(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory, Search&& search) {
  const Contracted segments(space, cost, memory);
  return segments.of_layers(
      search(segments.space(), static_cast<const StageCost&>(segments), segments.memory()));
}

}  // namespace pp::plan
