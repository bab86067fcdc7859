#include "libprofile/model/bound_segment.h"

#include <utility>

#include "libprofile/model/errors.h"

namespace pp::model::detail {
namespace {

BoundLayer bind_unit(const ResolvedModel& model, const Unit& unit) {
  if (unit.layer < 0) return bind_loss(model.graph.loss->op, model.graph.loss->attributes);
  const Layer& layer = model.graph.layers[static_cast<std::size_t>(unit.layer)];
  return bind_layer(layer.op, layer.attributes);
}

}  // namespace

BoundSegment bind_segment(const ResolvedModel& model, SegmentPlan plan) {
  BoundSegment bound{std::move(plan), {}};
  for (const Unit& unit : bound.plan.units) {
    bound.units.push_back(
        guarded([&] { return unit_name(model, unit); }, [&] { return bind_unit(model, unit); }));
  }
  return bound;
}

}  // namespace pp::model::detail
