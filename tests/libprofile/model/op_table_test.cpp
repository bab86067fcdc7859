// The two tables of operations, core's shapes and the forward functions here, agree.
#include "libprofile/core/ops/op_table.h"

#include <algorithm>

#include "libprofile/model/ops.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

TEST_SUITE("libprofile/model/op_table") {
  TEST_CASE("both tables have the same names") {
    std::vector<std::string_view> names;
    for (const OpRow& row : op_table()) {
      if (row.name != kOpaqueOp) names.push_back(row.name);  // planned, never run
    }
    CHECK((names == runnable_ops()));
    std::vector<std::string_view> losses;
    for (const OpRow& row : loss_table()) losses.push_back(row.name);
    CHECK((losses == runnable_losses()));
    CHECK_THROWS_WITH_AS(bind_layer(kOpaqueOp, {}), "this operation can be planned, but not run", Error);
    CHECK_THROWS_WITH_AS(bind_loss(kOpaqueOp, {}), "no loss is named \"opaque\"", Error);
  }

  TEST_CASE("the cases of these tests cover every op") {
    const std::vector<OpCase> cases = op_cases();
    for (const std::string_view name : runnable_ops()) {
      CAPTURE(name);
      CHECK(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) { return c.op == name; }));
    }
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
}
