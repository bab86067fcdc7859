#include "libplan/draw/chrome_trace.h"

#include <sstream>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

/// `F0.0>F1.0`: producers and the operations that need them.
std::string pairs(const SimulationResult& result) {
  const std::vector<const OpEvent*> consumers = message_consumers(result);
  std::ostringstream text;
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    text << (i > 0 ? " " : "") << to_text(result.messages[i].producer) << '>'
         << (consumers[i] == nullptr ? "?" : to_text(consumers[i]->op));
  }
  return text.str();
}

TEST_SUITE("libplan/draw/message consumers") {
  TEST_CASE("activations go to the next stage, gradients back") {
    CHECK(pairs(simulate(test::equal_stages(test::straight("gpipe", 3, 1)))) ==
          "F0.0>F1.0 F1.0>F2.0 B2.0>B1.0 B1.0>B0.0");
  }

  TEST_CASE("of several stages on the receiver the nearest is meant") {
    // V placement: stages 0 and 3 on worker 0, 1 and 2 on worker 1.
    const auto input =
        test::equal_stages(test::written({"F0.0 F3.0 I3.0 I0.0 W3.0 W0.0", "F1.0 F2.0 I2.0 I1.0 W2.0 W1.0"},
                                         {{0}, {1}, {1}, {0}}, 1),
                           2);
    CHECK(pairs(simulate(input)) == "F0.0>F1.0 F2.0>F3.0 I3.0>I2.0 I1.0>I0.0");
  }

  TEST_CASE("a skip goes straight to its reader") {
    auto input = test::equal_stages(test::straight("gpipe", 3, 1));
    for (const auto& [from, to] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
      input.edges.push_back({StageId{from}, StageId{to}, Bytes(1), Bytes(1)});
    }
    CHECK(pairs(simulate(input)) == "F0.0>F1.0 F0.0>F2.0 F1.0>F2.0 B2.0>B1.0 B2.0>B0.0 B1.0>B0.0");
  }

  TEST_CASE("in a run of several steps the next reader after the sending is meant") {
    SimulationResult result;
    const Op sent{OpKind::forward, StageId{0}, 0}, read{OpKind::forward, StageId{1}, 0};
    result.ops = {{WorkerId{1}, read, Seconds(1), Seconds(2)}, {WorkerId{1}, read, Seconds(11), Seconds(12)}};
    result.messages = {{WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(0.5), Seconds(0.6)},
                       {WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(9), Seconds(9.5)},
                       {WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(20), Seconds(21)}};
    const std::vector<const OpEvent*> consumers = message_consumers(result);
    CHECK(consumers == std::vector<const OpEvent*>{result.ops.data(), &result.ops[1], nullptr});
  }
}

}  // namespace
}  // namespace pp::plan
