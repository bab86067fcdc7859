// How the members of a tensor group divide a model's operations between them: the scheme of Megatron-LM
// (Shoeybi et al., 2019, sec. 3), by heads, by columns and then rows of neighbouring products, by vocabulary.
#pragma once

#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::profile {

/// What a member does of one operation. `alike`: what its input's part of positions or features needs, with all
/// of its weights. `columns`, `rows`: of a product's weight, so that its output or its input is divided by
/// features. `heads`: of given queries, keys and values. `attention`: heads, with the columns and rows of both
/// projections. `table`: rows of an embedding. `classes`: of the logits that a loss reads. `experts`: some of a
/// mixture, for tokens of all members.
enum class MemberPart { alike, columns, rows, heads, attention, table, classes, experts };

struct OperationSplit {
  MemberPart part = MemberPart::alike;
  /// Of the operation's work and weights. 1 / degree, or more where a vocabulary is padded: Megatron-LM pads it
  /// to a multiple of 128 for each member, so that products stay aligned.
  double share = 1;
};

/// One per operation: of the layers in order, of a graph its nodes in order, then of the loss. O(operations).
/// Throws pp::Error (usage) for a layer that `degree` devices cannot divide: heads or columns that are no
/// multiple, an operation without a way to split it. Degree 1 divides nothing and refuses nothing.
/// `context`: groups that divide positions between them, of attention too; refused likewise, and where they are
/// no multiple of 2 `context`: each has a slice from both ends, so that a causal mask leaves all as much.
/// `experts`: members that divide a mixture's; refused where they are no divisor of them, where there are none,
/// or where neither `experts` nor `degree` times `context` is a multiple of the other.
std::vector<OperationSplit> split_operations(const ResolvedModel& model, int degree, int context = 1,
                                             int experts = 1);

/// Whether it is weights of experts, not of what chooses them.
bool is_of_experts(const ParameterSpec& parameter);

/// Elements that a member holds of each parameter of layer `index`, whose first operation is
/// `splits[operation]`: matrices as the operations that use them are divided, biases of divided columns too,
/// other vectors whole.
std::vector<double> member_elements(const ResolvedModel& model, int index,
                                    const std::vector<OperationSplit>& splits, std::size_t operation);

}  // namespace pp::profile
