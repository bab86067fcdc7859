// Plans for clusters that are not at hand: nodes, money, tensor groups, other trainers' files.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "libprofile/estimate/estimate.h"
#include "libprofile/model/families/families.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace cluster_plan_test {
namespace {

using pp::Json;
using pp::test::Outcome;

const std::filesystem::path kConfigs = pp::test::repository("configs");

/// A Llama of 8 blocks estimated for an H100, alone and as if split over `tensor` of them: times, bytes of
/// weights and of everything else divided.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    const auto spec = pp::profile::parse_device_spec(pp::read_file(kConfigs / "devices" / "h100.json"));
    one = pp::profile::estimate_profile(
        pp::model::build_family(
            "llama:layers=8,width=1024,heads=8,kv_heads=8,hidden=2816,vocabulary=32000,sequence=512"),
        spec, {.micro_batch_sizes = {1, 2, 4}, .dtype = pp::DType::bfloat16});
    write("one.json", one);
  }
  void write(const std::string& name, const pp::Profile& profile) const {
    pp::write_file(path() / name, pp::dump_json(to_json(profile)));
  }
  /// Every time by `share` of that of one GPU.
  void write_group(int degree, double share) const {
    pp::Profile group = one;
    group.tensor_degree = degree;
    for (pp::LayerProfile& layer : group.layers) {
      layer.parameters.value /= degree;
      for (pp::LayerPoint& point : layer.points) {
        for (pp::TimeStat* time : {&point.forward, &point.backward})
          *time = {time->median * share, time->low * share, time->high * share, 0};
        point.input_gradient.reset();
        point.weight_gradient.reset();
      }
    }
    write("group.json", group);
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  Outcome plan(const std::vector<std::string>& more, std::vector<std::string> profiles = {"one.json"}) const {
    profiles.insert(profiles.end(), {"--mini-batch", "32", "--optimizer", "adamw", "-o", "plan.json"});
    profiles.insert(profiles.end(), more.begin(), more.end());
    return run(profiles);
  }
  pp::plan::Plan written() const { return pp::plan::parse_plan(pp::read_file(path() / "plan.json")); }
  std::string cluster(const std::string& name) const {
    return std::filesystem::canonical(kConfigs / "clusters" / name).string();
  }

  pp::Profile one;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("apps/cluster_plan") {
  TEST_CASE("a plan speaks of tokens, utilisation, money and days, printed, as JSON and when shown") {
    const Folder folder;
    const std::vector<std::string> machine{
        "--cluster", folder.cluster("dgx-h100.json"), "--nodes", "2", "--schedule", "1f1b"};
    std::vector<std::string> asked(machine);
    asked.insert(asked.end(), {"--price-per-hour", "2.5", "--tokens", "1e9"});
    const Outcome made = folder.plan(asked);
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const pp::plan::Plan plan = folder.written();
    CHECK(plan.devices.size() == 16);
    CHECK(plan.peak_flops_per_s == 989e12);
    CHECK(has(made.out, " tokens/s, "));
    CHECK(has(made.out, " per million tokens at 2.5 per GPU and hour\n"));
    CHECK(has(made.out, "1e+09 tokens in "));
    asked.push_back("--json");
    const Json json = pp::parse_json(folder.plan(asked).out);
    const Json& words = json.at("throughput");
    // From the plan's own promise: 512 tokens a sample, 16 GPUs.
    const double tokens = 512 * plan.predicted.samples_per_s;
    CHECK(words.at("tokens_per_s").get<double>() == doctest::Approx(tokens));
    CHECK(words.at("tokens_per_s_per_device").get<double>() == doctest::Approx(tokens / 16));
    CHECK(words.at("mfu").get<double>() ==
          doctest::Approx(words.at("model_flops_per_s_per_device").get<double>() / 989e12));
    CHECK(words.at("cost").get<double>() == doctest::Approx(1e9 / tokens / 3600 * 16 * 2.5));
    CHECK(words.at("duration_s").get<double>() == doctest::Approx(1e9 / tokens));
    CHECK(pp::plan::plan_from_json(json) == plan);  // the words follow from it
    const Outcome shown = folder.run({"show", "plan.json", "--price-per-hour", "2.5", "--tokens", "1e9"});
    CHECK(has(shown.out, "1e+09 tokens in "));
    const Outcome both = folder.run({"show", "plan.json", "--tokens", "1e9", "--samples", "5"});
    CHECK(both.code == 2);
  }

  TEST_CASE("a sweep over nodes marks the front of time and money") {
    const Folder folder;
    std::vector<std::string> grid{"sweep",
                                  "one.json",
                                  "--cluster",
                                  folder.cluster("dgx-h100.json"),
                                  "--nodes",
                                  "1,2,4",
                                  "--mini-batch",
                                  "64",
                                  "--micro-batches",
                                  "64",
                                  "--schedules",
                                  "1f1b",
                                  "--price-per-hour",
                                  "2"};
    const Outcome table = folder.run(grid);
    CAPTURE(table.err);
    REQUIRE(table.code == 0);
    CHECK(has(table.out, "per million"));
    CHECK(has(table.out, "\nfront: "));
    std::vector<std::string> json_grid(grid);
    json_grid.push_back("--json");
    const Json rows = pp::parse_json(folder.run(json_grid).out);
    REQUIRE(rows.size() == 3);
    CHECK(rows[2].at("devices") == 32);
    // The fastest row and the cheapest one are on the front.
    const auto least = [&](const std::string& key) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < 3; ++i)
        if (rows[i].at(key).get<double>() < rows[best].at(key).get<double>()) best = i;
      return best;
    };
    CHECK(rows[least("step_s")].at("front") == true);
    CHECK(rows[least("cost_per_million")].at("front") == true);
    CHECK(rows[0].at("mfu").get<double>() > 0);

    grid.insert(grid.end(), {"--for", "megatron"});
    const Outcome refused = folder.run(grid);
    CHECK(refused.code == 2);
    CHECK(has(refused.err, "--schedule: --for megatron takes hybrid,interleaved"));
    *std::ranges::find(grid, "1f1b") = "hybrid";
    CHECK(folder.run(grid).code == 0);
  }

  TEST_CASE("nodes that the machine cannot say are refused") {
    const Folder folder;
    CHECK(folder.plan({"--devices", "4", "--bandwidth", "1e9", "--nodes", "2"}).code == 2);
    const Outcome flat = folder.plan({"--cluster", folder.cluster("four-gpus.json"), "--nodes", "2"});
    CHECK(flat.code == 2);
    CHECK(has(flat.err, "four-gpus.json: --nodes: the cluster has 1 level,"));
    CHECK(folder.plan({"--levels", "4@300GB/s,2@25GB/s", "--nodes", "4", "--schedule", "data-parallel"}).code ==
          0);
    CHECK(folder.written().devices.size() == 16);
  }

  TEST_CASE("tensor groups compete with GPUs of their own, counted in GPUs") {
    // Half the times in pairs would be as fast as data parallelism without its all-reduce; at a fifth, pairs
    // win.
    const Folder folder;
    folder.write_group(2, 0.2);
    const std::vector<std::string> machine{"--devices", "8", "--bandwidth", "300GB/s", "--schedule", "1f1b"};
    const Outcome made = folder.plan(machine, {"one.json", "group.json"});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const pp::plan::Plan plan = folder.written();
    CHECK(plan.tensor_degree == 2);
    CHECK(plan.devices.size() == 4);
    REQUIRE(plan.machines.size() == 2);
    CHECK(plan.machines[0].tensor_degree == 2);
    CHECK(plan.machines[1].devices == 8);
    CHECK(has(made.out, "4 groups of 2 GPUs beat every plan for 8 GPUs: "));
    CHECK(has(made.out, ", tensor groups of 2\n"));
    CHECK(has(folder.run({"show", "plan.json"}).out, ", tensor groups of 2\n"));
    CHECK(folder.run({"check", "plan.json", "--profile", "group.json"}).code == 0);

    folder.write_group(2, 0.9);
    CHECK(folder.plan(machine, {"one.json", "group.json"}).code == 0);
    CHECK(folder.written().tensor_degree == 1);

    folder.write_group(3, 0.5);
    const Outcome odd = folder.plan(machine, {"group.json"});
    CHECK(odd.code == 2);
    CHECK(has(odd.err, "tensor groups of 3 do not divide the 8 devices"));
  }

  TEST_CASE("from a search for a trainer to its folder") {
    const Folder folder;
    folder.write_group(2, 0.4);
    const Outcome made = folder.plan({"--cluster", folder.cluster("dgx-h100.json"), "--nodes", "2", "--for",
                                      "megatron", "--precision", "mixed", "--shard", "optimizer"},
                                     {"group.json"});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    CHECK(folder.written().context.at("for") == "megatron");
    CHECK(folder.written().training.optimizer == pp::plan::OptimizerName::adamw);
    const Outcome exported = folder.run({"export", "plan.json", "--format", "megatron", "-o", "launch"});
    CAPTURE(exported.err);
    REQUIRE(exported.code == 0);
    const std::string arguments = pp::read_file(folder.path() / "launch" / "arguments.txt");
    CHECK(has(arguments, "--tensor-model-parallel-size 2\n--sequence-parallel\n"));
    CHECK(has(arguments, "--bf16\n--use-distributed-optimizer\n"));
    CHECK(has(pp::read_file(folder.path() / "launch" / "README.md"), "the times are estimated"));
    CHECK(folder.run({"export", "plan.json", "--format", "megatron"}).out == arguments);
    CHECK_FALSE(has(exported.err, "model.txt does not say"));
    // The launcher, with a torchrun that says what it was started with.
    pp::write_file(folder.path() / "torchrun",
                   "#!/bin/sh\necho \"connections $CUDA_DEVICE_MAX_CONNECTIONS\" \"$@\"\n");
    const Outcome started = pp::test::run_program(
        "/bin/bash",
        {"-c", "chmod +x torchrun && PATH=$PWD:$PATH MEGATRON=there NODE_RANK=1 bash launch/launch.sh --lr 1"},
        folder.path());
    CAPTURE(started.err);
    CHECK(started.code == 0);
    CHECK(has(started.out, "connections 1 --nproc-per-node 8 --nnodes 2 --node-rank 1 "));
    CHECK(has(started.out, " there/pretrain_gpt.py --pipeline-model-parallel-size "));
    CHECK(has(
        started.out,
        " --normalization RMSNorm --norm-epsilon 1e-05 --swiglu --position-embedding-type rope --rotary-base "
        "500000 --disable-bias-linear --attention-dropout 0 --hidden-dropout 0 --optimizer adam --lr 1\n"));
    const Outcome nowhere = folder.run({"export", "plan.json", "--format", "torchtitan"});
    CHECK(nowhere.code == 2);
    CHECK(has(nowhere.err, "--format torchtitan writes several files; name their folder with -o"));
    const Outcome refused =
        folder.plan({"--devices", "8", "--bandwidth", "300GB/s", "--for", "megatron", "--schedule", "zb-h1"});
    CHECK(refused.code == 2);
    CHECK(has(refused.err, "--schedule: --for megatron takes hybrid,interleaved"));
  }

  TEST_CASE("a plan for a trainer starts as many processes on each node, or says what would") {
    const Folder folder;
    const auto plan = [&](const std::string& mini_batch, const std::vector<std::string>& more) {
      std::vector<std::string> arguments{
          "one.json", "--mini-batch", mini_batch, "--cluster", folder.cluster("dgx-h100.json"), "--nodes",
          "2",        "-o",           "plan.json"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return folder.run(arguments);
    };
    // 31 is prime, so replicas of equal work are 1 or 31; a pipeline has no more than ten stages.
    const Outcome prime = plan("31", {"--for", "megatron"});
    CAPTURE(prime.err);
    REQUIRE(prime.code == 0);
    CHECK(folder.written().workers.size() <= 8);
    CHECK(has(prime.err, "equal replicas share 31 samples badly, and "));
    CHECK(has(prime.err, " of 16 GPUs work: with --mini-batch 32 a step takes "));
    CHECK(has(prime.err, "--for megatron plans with --optimizer adamw"));
    CHECK(folder.run({"export", "plan.json", "--format", "megatron", "-o", "launch"}).code == 0);
    CHECK_FALSE(has(plan("32", {"--for", "megatron"}).err, "samples badly"));

    const Outcome unequal = plan("30", {"--for", "megatron", "--micro-batches", "4"});
    CHECK(unequal.code == 2);
    CHECK(has(unequal.err,
              "micro_batches = 4: 30 samples make no micro-batches of one size, which --for megatron"));

    const Outcome titan = plan("32", {"--for", "torchtitan"});
    CHECK(titan.code == 0);
    CHECK(has(titan.err, "(FSDP), which is not modelled"));
    CHECK(folder.written().training.precision == pp::plan::Precision::mixed);
    CHECK(plan("32", {"--for", "torchtitan", "--precision", "plain"}).code == 0);
    CHECK(folder.written().training.precision == pp::plan::Precision::plain);
    const Outcome exported = folder.run({"export", "plan.json", "--format", "torchtitan", "-o", "titan"});
    CHECK(exported.code == 0);
    CHECK(has(exported.err, "config.toml names no model: none of TorchTitan's flavors of Llama 3 is this one"));
    // Nothing is started that names no model.
    const Outcome refused = pp::test::run_program("/bin/bash", {"titan/launch.sh"}, folder.path());
    CHECK(refused.code == 1);
    CHECK(has(refused.err, "config.toml has entries to fill in: model.name, model.flavor"));
  }

  TEST_CASE("a sweep for a trainer takes the best number of micro-batches of each row") {
    const Folder folder;
    const std::vector<std::string> grid{"sweep",   "one.json", "--cluster",    folder.cluster("dgx-h100.json"),
                                        "--nodes", "1,2",      "--mini-batch", "64",
                                        "--for",   "megatron", "--json"};
    const Outcome best = folder.run(grid);
    CAPTURE(best.err);
    REQUIRE(best.code == 0);
    std::vector<std::string> each(grid);
    each.insert(each.end(), {"--micro-batches", "16,32,64"});  // sizes 4, 2 and 1
    const Json rows = pp::parse_json(best.out), all = pp::parse_json(folder.run(each).out);
    REQUIRE(rows.size() == 4);
    REQUIRE(all.size() == 12);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double least = 1e9;
      for (std::size_t m = 0; m < 3; ++m)
        if (all[3 * r + m].contains("step_s"))
          least = std::min(least, all[3 * r + m].at("step_s").get<double>());
      CHECK(rows[r].at("step_s").get<double>() == doctest::Approx(least));
      CHECK(rows[r].at("micro_batches").get<int>() >= 16);
    }
  }

  TEST_CASE("a peer's cost model knows neither tensor groups nor budgets") {
    const Folder folder;
    folder.write_group(2, 0.5);
    const std::vector<std::string> peer{"--cost-model", "pipedream-code", "--devices", "4", "--bandwidth",
                                        "1e9"};
    CHECK(has(folder.plan(peer, {"group.json"}).err, "a profile of tensor groups is only for --cost-model pp"));
    std::vector<std::string> priced(peer);
    priced.insert(priced.end(), {"--price-per-hour", "1"});
    CHECK(folder.plan(priced).code == 2);
  }
}

}  // namespace cluster_plan_test
