#include "libplan/peers/pipedream_text.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/pipedream_text");

namespace pp::plan::pipedream_text_test {
namespace {

/// `id -- description -- numbers` with 1 ms forward, 2 ms backward, 8 bytes out, 4 bytes of weights.
std::string node(const std::string& id, const std::string& description = "ReLU()") {
  return id + " -- " + description +
         " -- forward_compute_time=1, backward_compute_time=2.000, activation_size=8.0, parameter_size=4\n";
}

std::string refusal(const std::string& text) {
  return pp::test::error_of([&] { import_pipedream(text, "m", 1); });
}

}  // namespace

TEST_CASE("nodes and edges become opaque layers in topological order, times in seconds") {
  const Profile profile = import_pipedream(
      "node3 -- Linear(in=4, out: 2) a=b, c -- forward_compute_time=1.5, backward_compute_time=3, "
      "activation_size=[8.0; 4; 4], parameter_size=40.000\n" +
          node("node2") + node("node1", "Input0") + "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node3",
      "tiny", 4);
  REQUIRE(profile.layers.size() == 2);
  CHECK(profile.model.name == "tiny");
  CHECK(profile.model.layers[0].name == "node2");
  CHECK(profile.model.layers[0].inputs.empty());  // the Input node is gone, with its time
  CHECK(profile.model.layers[1].inputs == std::vector<std::string>{"node2"});
  CHECK(profile.model.outputs == std::vector<std::string>{"node3"});
  CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{4});
  const LayerPoint& point = profile.layers[1].points.front();
  CHECK(point.forward.median.count() == 0.0015);
  CHECK(point.backward.median.count() == 0.003);
  CHECK(point.forward.samples == 0);
  CHECK_FALSE(point.input_gradient.has_value());
  CHECK(point.output == Bytes(16));
  CHECK(point.saved == Bytes(16));
  CHECK(profile.layers[1].parameters == Bytes(40));
  CHECK(profile.mode == ProfileMode::imported);
  CHECK(profile.estimated == std::vector<std::string>{"input_gradient_s", "saved_bytes", "batch_size"});
}

TEST_CASE("an imported profile is a document like any other") {
  const Profile profile = import_pipedream(node("node1") + node("node2") + "\tnode1 -- node2\n", "m", 1);
  CHECK(parse_profile(dump_json(to_json(profile))) == profile);
}

TEST_CASE(
    "sinks called __getitem__ go in one pass, names like input_ids stay, CRLF and blank lines do no harm") {
  const Profile profile =
      import_pipedream(node("n1", "input_ids") + "\r\n" + node("n2") + node("n3", "__getitem__(0)") +
                           node("n4", "__getitem__(1)") + "\tn1 -- n2\r\n\tn2 -- n3\n\tn3 -- n4\n",
                       "m", 1);
  // n4 is a sink and goes; n3 becomes one only then and stays.
  REQUIRE(profile.layers.size() == 3);
  CHECK(profile.layers[2].name == "n3");
}

TEST_CASE("edges are indented by a tab, by spaces, or by both") {
  const Profile profile = import_pipedream(
      node("a") + node("b") + node("c") + node("d") + "\ta -- b\n    b -- c\n \tc -- d\t\n", "m", 1);
  REQUIRE(profile.layers.size() == 4);
  for (std::size_t i = 1; i < 4; ++i)
    CHECK(profile.model.layers[i].inputs == std::vector<std::string>{profile.layers[i - 1].name});
}

TEST_CASE("the batch size in a file's name ends where its digits do") {
  CHECK(batch_size_in_name("vgg-19-pbs-32") == 32);
  CHECK(batch_size_in_name("net-pbs-8-simplified") == 8);
  CHECK(batch_size_in_name("net") == 1);
  CHECK_THROWS_WITH(
      batch_size_in_name("net-pbs-many"),
      "the file's name says -pbs-many, which begins with no batch size from 1 to 2147483647; give "
      "--batch-size");
  CHECK_THROWS_AS(batch_size_in_name("net-pbs-0"), Error);
  CHECK_THROWS_AS(batch_size_in_name("net-pbs-99999999999"), Error);
}

TEST_CASE("what is wrong is refused with its line") {
  CHECK(refusal("") == "the graph has no layer");
  CHECK(refusal(node("a", "Input")) == "the graph has no layer");
  CHECK(refusal(node("a") + node("a")) == "line 2: node a stands twice");
  CHECK(refusal(node("a") + "\ta -- b\n") == "line 2: the edge names node b, which the file does not have");
  CHECK(refusal(node("a") + node("b") + "\ta -- b\n\tb -- a\n") == "node a is on a cycle, or behind one");
  CHECK(refusal(node("a") + "\ta\n") ==
        "line 2: an edge is an indented line with two node ids, `node3 -- node7`");
  CHECK(
      refusal(
          "a -- x -- forward_compute_time=-1, backward_compute_time=2, activation_size=3, parameter_size=4") ==
      "line 1: forward_compute_time = \"-1\" is not a finite number of at least 0");
  CHECK(
      refusal(
          "a -- x -- forward_compute_time=nan, backward_compute_time=2, activation_size=3, parameter_size=4") ==
      "line 1: forward_compute_time = \"nan\" is not a finite number of at least 0");
  CHECK(refusal("a -- x -- forward_compute_time=1, activation_size=3, parameter_size=4") ==
        "line 1: the node has no backward_compute_time");
  CHECK(refusal("hello") ==
        "line 1: a node is `id -- description -- forward_compute_time=.., backward_compute_time=.., "
        "activation_size=.., "
        "parameter_size=..`");
  CHECK_THROWS_WITH(import_pipedream(node("a"), "m", 0), "batch_size = 0; give at least 1");
}

}  // namespace pp::plan::pipedream_text_test

TEST_SUITE_END();
