// What the table of operations says of its examples is what they do.
#include "libprofile/core/ops/op_table.h"

#include <algorithm>
#include <set>
#include <string>

#include "libprofile/model/ops.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

namespace op_table_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

TEST_SUITE("libprofile/model/op_table") {
  TEST_CASE("every operation that runs has an example; losses of both tables have the same names") {
    for (const OpRow& row : op_table()) {
      CAPTURE(row.name);
      CHECK(row.examples.empty() != row.runnable);
    }
    std::vector<std::string_view> losses;
    for (const OpRow& row : loss_table()) losses.push_back(row.name);
    CHECK((losses == runnable_losses()));
    CHECK_THROWS_WITH_AS(bind_layer(kOpaqueOp, {}), "this operation can be planned, but not run", Error);
    CHECK_THROWS_WITH_AS(bind_loss(kOpaqueOp, {}), "no loss is named \"opaque\"", Error);
  }

  TEST_CASE("outputs have the inferred shapes and types") {
    for (const OpCase& op_case : op_cases()) {
      const std::string text = to_text(op_case);
      CAPTURE(text);
      const OpInstance op = instantiate(op_case, 2);
      const Tensors outputs = op();
      REQUIRE(outputs.size() == op.inferred.outputs.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        Shape expected{2};
        const Shape& inferred = op.inferred.outputs[i].shape;
        expected.insert(expected.end(), inferred.begin(), inferred.end());
        CHECK(outputs[i].sizes() == at::IntArrayRef(expected));
        CHECK((outputs[i].scalar_type() == at::kDouble));
      }
    }
  }

  TEST_CASE("the ops whose rows say that they draw, and no others, need a generator in training") {
    std::set<std::string_view> drew;
    for (const OpCase& op_case : op_cases()) {
      const OpInstance op = instantiate(op_case, 2);
      LayerContext context;
      try {
        op.forward(op.inputs, op.weights, context);
      } catch (const Error& error) {
        CHECK(std::string(error.what()) == "dropout: no generator; give the pass context one");
        drew.insert(find_op(op_case.op)->name);
      }
    }
    for (const OpRow& row : op_table()) {
      CAPTURE(row.name);
      CHECK(drew.contains(row.name) == row.draws);
    }
  }

  TEST_CASE("a sample's result depends on the others where the row says so, and nowhere else") {
    for (const OpCase& op_case : op_cases()) {
      const std::string text = to_text(op_case);
      CAPTURE(text);
      const OpRow& row = *find_op(op_case.op);
      if (row.draws) continue;  // masks are drawn for the whole micro-batch
      const OpInstance op = instantiate(op_case, 3);
      std::vector<at::Tensor> first_two;
      for (const at::Tensor& input : op.inputs) first_two.push_back(input.narrow(0, 0, 2));
      LayerContext context, other;
      const at::Tensor all = op.forward(op.inputs, op.weights, context)[0].narrow(0, 0, 2);
      const at::Tensor alone = op.forward(first_two, op.weights, other)[0];
      CHECK(all.allclose(alone, 1e-9, 1e-9) != row.batch_statistics);
    }
  }
}

}  // namespace op_table_test
