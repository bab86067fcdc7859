#include "libprofile/model/bound_segment.h"

#include <utility>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/graph_layer.h"

namespace pp::model::detail {
namespace {

BoundLayer bind_unit(const ResolvedModel& model, const Unit& unit) {
  return guarded([&] { return unit_name(model, unit); },
                 [&] { return unit.layer < 0 ? bind_loss(model) : bind_layer(model, unit.layer); });
}

}  // namespace

BoundSegment bind_segment(const ResolvedModel& model, SegmentPlan plan) {
  BoundSegment bound{std::move(plan), {}};
  for (const Unit& unit : bound.plan.units) bound.units.push_back(bind_unit(model, unit));
  return bound;
}

}  // namespace pp::model::detail

namespace pp::model {

BoundLayer bind_layer(const ResolvedModel& model, int layer) {
  const Layer& spec = model.graph.layers[static_cast<std::size_t>(layer)];
  if (spec.op == kGraphOp || spec.op == kAtenOp)
    return bind_graph(spec, model.layers[static_cast<std::size_t>(layer)]);
  return bind_layer(spec.op, spec.attributes);
}

BoundLayer bind_loss(const ResolvedModel& model) {
  const LossSpec& loss = *model.graph.loss;
  return loss.op == kGraphOp ? bind_loss_graph(loss, model.loss) : bind_loss(loss.op, loss.attributes);
}

void check_bindable(const ResolvedModel& model) {
  detail::Unit unit;
  for (unit.layer = 0; unit.layer < model.layer_count(); ++unit.layer) detail::bind_unit(model, unit);
  unit.layer = -1;
  if (model.graph.loss) detail::bind_unit(model, unit);
}

}  // namespace pp::model
