#include "libprofile/model/bound_segment.h"

#include "libprofile/model/bindable.h"

#include <utility>

#include "libprofile/core/model/counted_labels.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/graph_layer.h"

namespace pp::model::detail {
namespace {

BoundLayer bind_planned(const ResolvedModel& model, const PlannedLayer& planned) {
  return guarded([&] { return layer_name(model, planned); },
                 [&] { return planned.layer < 0 ? bind_loss(model) : bind_layer(model, planned.layer); });
}

}  // namespace

BoundSegment bind_segment(const ResolvedModel& model, SegmentPlan plan, MemoryFormat format) {
  BoundSegment bound{std::move(plan), format, {}};
  for (const PlannedLayer& planned : bound.plan.order) bound.layers.push_back(bind_planned(model, planned));
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
  detail::PlannedLayer planned;
  for (planned.layer = 0; planned.layer < model.layer_count(); ++planned.layer)
    detail::bind_planned(model, planned);
  planned.layer = -1;
  if (model.graph.loss) detail::bind_planned(model, planned);
  counted_labels(model);
}

}  // namespace pp::model
