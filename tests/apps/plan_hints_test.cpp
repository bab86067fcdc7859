// What pp-plan says beside a plan, so that its reader trusts it no further than it goes: other devices,
// doubtful times, schedules left out, the memory that would do, words as they are typed.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/cli/table.h"
#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_hints_test {
namespace {

using pp::Json;
using pp::test::Outcome;
using Arguments = std::vector<std::string>;

struct Folder : pp::test::TemporaryFolder {
  explicit Folder(const std::vector<double>& forward_ms = std::vector<double>(6, 2.0)) {
    write(pp::test::sample_profile(forward_ms));
  }
  void write(const pp::Profile& profile) const { pp::test::write_profile(path(), profile); }
  Outcome run(const Arguments& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  Outcome plan(const Arguments& more) const {
    Arguments arguments{"profile.json", "--mini-batch", "64", "-o", "plan.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  Outcome on_two_devices(Arguments more) const {
    more.insert(more.begin(), {"--devices", "2", "--bandwidth", "1e9"});
    return plan(more);
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  REQUIRE(from != std::string::npos);
  const std::size_t first = from + begin.size();
  return text.substr(first, text.find_first_of(end, first) - first);
}

pp::Profile on_gpu(const std::string& name) {
  pp::Profile profile = pp::test::sample_profile(std::vector<double>(6, 2.0));
  profile.device = {.kind = pp::DeviceKind::cuda, .name = name, .memory = pp::Bytes(std::int64_t{80} << 30)};
  return profile;
}

/// Whose backwards are split by rule, not by measurement.
pp::Profile with_guessed_halves() {
  pp::Profile profile = pp::test::sample_profile(std::vector<double>(6, 2.0));
  for (pp::LayerProfile& layer : profile.layers) {
    for (pp::LayerPoint& point : layer.points) {
      const pp::Seconds half = point.backward.median / 2;
      point.input_gradient = point.weight_gradient = pp::TimeStat{half, half, half, 0};
    }
  }
  profile.estimated = {"input_gradient_s"};
  return profile;
}

}  // namespace

TEST_SUITE("apps/plan_hints") {
  TEST_CASE("the least memory is said as the option takes it, and typed again it has a plan") {
    const Folder folder;
    for (const std::string option : {"--memory", "--memory-limit"}) {
      const Outcome refused = folder.on_two_devices({"--micro-batches", "4", option, "1KiB"});
      CAPTURE(refused.err);
      REQUIRE(refused.code == 3);
      const std::string size = between(refused.err, "\npp-plan: smallest that fits: " + option + " ", ",\n");
      CHECK(has(refused.err, ", of which 5 % stay free\n") == (option == "--memory"));
      CHECK(folder.on_two_devices({"--micro-batches", "4", option, size}).code == 0);
    }
  }

  TEST_CASE("a profile of one GPU on a cluster of another is planned, with a warning") {
    const Folder folder;
    folder.write(on_gpu("NVIDIA H100 80GB HBM3"));
    const auto cluster = [](const std::string& name) {
      return pp::test::repository("configs/clusters/" + name + ".json");
    };
    const std::string warning =
        "pp-plan: warning: the profile's times are of NVIDIA H100 80GB HBM3, the cluster has A100: only its "
        "links "
        "and memory count; profile such a device, or estimate its times with pp-profile estimate "
        "--device-spec\n";
    const Outcome other = folder.plan({"--cluster", cluster("dgx-a100")});
    CHECK(other.code == 0);
    CHECK(other.err == warning);
    CHECK(folder.plan({"--cluster", cluster("dgx-h100")}).err.empty());
    CHECK(folder
              .run({"sweep", "profile.json", "--cluster", cluster("dgx-a100"), "--mini-batch", "64",
                    "--schedule", "gpipe"})
              .err == warning);
    // Every cluster that comes with the tools says what its devices are.
    for (const std::string name : {"dgx-b200", "hgx-h200", "pcie-l40s"})
      CHECK(has(folder.plan({"--cluster", cluster(name)}).err, "the cluster has "));
  }

  TEST_CASE("a stage with next to no work is named") {
    const Folder folder({10, 10, 0.1, 0.1});
    const Outcome made = folder.on_two_devices({"--schedule", "1f1b", "--cuts", "2", "--replicas", "1-1"});
    REQUIRE(made.code == 0);
    CHECK(
        has(made.err, "pp-plan: warning: stage 1 has 1.0 % of the work of stage 0: its device hardly helps; "));
    CHECK_FALSE(has(folder.on_two_devices({"--cuts", "1", "--replicas", "1-1"}).err, "hardly helps"));
  }

  TEST_CASE("an expected step far above that of the medians stands below it") {
    const Folder folder;
    REQUIRE(folder.on_two_devices({}).code == 0);
    Json plan = pp::parse_json(pp::read_file(folder.path() / "plan.json"));
    const double step = plan["predicted"]["step_s"].get<double>();
    const auto shown = [&](double share) {
      plan["predicted"]["expected_step_s"] = share * step;
      pp::write_file(folder.path() / "varying.json", pp::dump_json(plan));
      return folder.run({"show", "varying.json"}).out;
    };
    CHECK(has(shown(3), " per step, 200.0 % above that of the median times: the profile's times vary\n"));
    CHECK_FALSE(has(shown(1.05), "above that of the median times"));
  }

  TEST_CASE("schedules that are left out have a line of their own, what was searched one with -v") {
    const Folder folder;
    folder.write(with_guessed_halves());
    const Outcome made = folder.on_two_devices({});
    REQUIRE(made.code == 0);
    CHECK(has(made.out, "\nleft out: zb-h1, "));
    CHECK(has(made.out,
              ", the profile only estimates how the backward splits; --schedule NAME plans one all the "
              "same\n"));
    CHECK_FALSE(has(made.out, "layer order"));
    CHECK(has(folder.on_two_devices({"-v"}).out, "exact over 1 layer order, "));
    CHECK(folder.on_two_devices({"--schedule", "zb-h1"}).code == 0);
  }

  TEST_CASE("a refused option is the only thing that is said") {
    const Folder folder;
    folder.write(with_guessed_halves());
    CHECK(has(folder.on_two_devices({}).err, "only estimates"));
    const Outcome refused = folder.on_two_devices({"--strategy", "balance-by-tim"});
    CHECK(refused.code == 2);
    CHECK(
        refused.err.starts_with("pp-plan: error: --strategy: unknown name \"balance-by-tim\"; did you mean "
                                "balance-by-time? Use one of "));
  }

  TEST_CASE("--levels says how many network cards a node has, and that one for several devices is one") {
    const Folder folder;
    const Outcome two = folder.plan({"--levels", "4@8GB/s,2@2x1GB/s"});
    CHECK(two.code == 0);
    CHECK(two.err.empty());
    const pp::plan::Plan plan = pp::plan::parse_plan(pp::read_file(folder.path() / "plan.json"));
    CHECK(plan.levels[0].cards == 2);
    CHECK(plan.levels[1].bandwidth == pp::BytesPerSecond(1e9));
    CHECK(has(folder.plan({"--levels", "4@8GB/s,2@1GB/s"}).err,
              "the 4 devices of a node share one network card; with one each write 2@4x1GB/s\n"));
    CHECK(has(folder.plan({"--levels", "4@8GB/s,2@3x1GB/s"}).err,
              "--levels: 3 cards do not serve equally many of 4 devices; give a divisor of that number\n"));
    CHECK(has(folder.plan({"--levels", "4@2x8GB/s,2@1GB/s"}).err, "--levels: 2 cards stand at level 1; "));
  }

  TEST_CASE("names and numbers are taken as people type them") {
    const Folder folder;
    CHECK(has(folder.on_two_devices({"--for", "megatorn"}).err, "did you mean megatron? "));
    CHECK(has(folder.on_two_devices({"--samples", "2K"}).out, "\n2000 samples in "));
    CHECK(folder.on_two_devices({"--samples", "1.5B"}).code == 0);
    for (const std::string wrong : {"15Q", "T", "0.5", "1e999"})
      CHECK(has(
          folder.on_two_devices({"--samples", wrong}).err,
          "--samples: \"" + wrong + "\" is not a number of at least 1; write for example 300B, 15T or 1.4e13"));
  }

  TEST_CASE("a narrow table keeps what decides, and breaks lists behind bars") {
    using pp::cli::Align, pp::cli::Overflow;
    pp::cli::Table table({{"schedule", Align::left, Overflow::shorten, pp::cli::kWhole},
                          {"stages", Align::left, Overflow::wrap, 10},
                          {"devices", Align::left}});
    table.add({"interleaved", "222|111|333", "a/cuda:0 .. b/cuda:7"});
    CHECK(table.text(34) ==
          "schedule     stages      devices\n"
          "-----------  ----------  ---------\n"
          "interleaved  222|111|    a/cuda...\n"
          "             333\n");
  }
}

}  // namespace plan_hints_test
