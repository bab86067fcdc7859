// Disks that fail under a training: what it says, how it ends, which files it leaves.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/apps/run_folder.h"
#include "tests/librun/data_bytes.h"

#include "tests/support/doctest.h"

namespace {

namespace fs = std::filesystem;
using pp::test::Outcome;
using pp::test::RunFolder;
using Arguments = std::vector<std::string>;

constexpr int kSamples = 64;

/// A plan of two stages, and samples in data.safetensors, inputs behind targets.
struct Folder : RunFolder {
  Folder() {
    std::vector<std::int64_t> y;
    std::vector<float> x;
    for (int i = 0; i < kSamples; ++i) {
      y.push_back(i % 4);
      for (int k = 0; k < 8; ++k) x.push_back(static_cast<float>((i * 7 + k * 3) % 11) / 11);
    }
    const std::string header = R"({"y": {"dtype": "I64", "shape": [64], "data_offsets": [0, 512]},)"
                               R"( "x": {"dtype": "F32", "shape": [64, 8], "data_offsets": [512, 2560]}})";
    pp::write_file(path() / "data.safetensors",
                   ::test::safetensors_bytes(header, ::test::bytes_of(y) + ::test::bytes_of(x)));
  }

  /// pp-run on these samples, its reads failing as `faults` say.
  Outcome train(Arguments arguments, Arguments faults = {}) const {
    if (!faults.empty()) faults.push_back("LD_PRELOAD=" PP_FAULTY_DISK);
    faults.push_back(tool().string());
    faults.insert(faults.end(), arguments.begin(), arguments.end());
    faults.insert(faults.end(), {"--data", "data.safetensors", "--no-evaluate"});
    return pp::test::run_program("/usr/bin/env", faults, path());
  }

  std::vector<std::string> names(const std::string& folder) const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path() / folder))
      all.push_back(entry.path().filename().string());
    std::ranges::sort(all);
    return all;
  }
};

}  // namespace

TEST_SUITE("apps/fault") {
  TEST_CASE(
      "data that cannot be read any more end the run with file and byte; it goes on from its checkpoint") {
    const Folder folder;
    const Arguments whole{"plan.json", "--epochs", "3", "--save-weights", "whole"};
    REQUIRE(folder.train(whole).code == 0);
    Arguments cut{"plan.json", "--epochs", "3",  "--save-weights", "cut", "--checkpoint", "ck",
                  "--every",   "4",        "-o", "r.json"};
    // A step reads 8 rows of inputs and of targets: the fault comes after the first epoch of 8 steps.
    const Outcome outcome = folder.train(cut, {"PP_FAULT_FILE=data.safetensors", "PP_FAULT_AFTER=200"});
    CHECK(outcome.code == 1);
    CHECK(outcome.out == "");
    const auto at = outcome.err.find("pp-run: error: worker ");
    REQUIRE(at != std::string::npos);
    CHECK(outcome.err.find("data.safetensors: byte ", at) != std::string::npos);
    CHECK(outcome.err.find(": cannot be read: Input/output error\n", at) != std::string::npos);
    CHECK(outcome.err.find("pp-run: error: ", at + 1) == std::string::npos);  // one message
    CHECK_FALSE(fs::exists(folder.path() / "cut"));
    CHECK_FALSE(fs::exists(folder.path() / "r.json"));
    CHECK(!folder.names("ck").empty());
    cut.insert(cut.end(), {"--resume", "ck"});
    CHECK(folder.train(cut).code == 0);
    CHECK(pp::read_file(folder.path() / "cut") == pp::read_file(folder.path() / "whole"));
  }

  TEST_CASE("data on a disk that does not answer: the stall is named, and the process ends all the same") {
    const Folder folder;
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome =
        folder.train({"plan.json", "--epochs", "3", "--save-weights", "w", "--stall-timeout", "3s"},
                     {"PP_FAULT_FILE=data.safetensors", "PP_FAULT_AFTER=200", "PP_FAULT_HANGS=1"});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    CHECK(outcome.code == 1);
    CHECK(outcome.err.find("pp-run: error: stalled: no operation has ended for 3 s") != std::string::npos);
    // Either the one that reads inputs or the one that reads targets comes to the byte, in a forward.
    const bool first = outcome.err.find("  worker 0: F0.") != std::string::npos;
    const bool second = outcome.err.find("  worker 1: F1.") != std::string::npos;
    CHECK((first || second));
    CHECK(outcome.err.find("  worker 0: ") != std::string::npos);
    CHECK(outcome.err.find("  worker 1: ") != std::string::npos);
    CHECK_FALSE(fs::exists(folder.path() / "w"));
    CHECK(took.count() < 60);  // it does not hang
  }

  TEST_CASE("data that are not there, or not any more, are refused before work with the path") {
    const Folder folder;
    fs::rename(folder.path() / "data.safetensors", folder.path() / "moved");
    const Outcome outcome = folder.train({"plan.json", "--epochs", "3", "--checkpoint", "ck", "-o", "r.json"});
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("pp-run: error: data.safetensors") != std::string::npos);
    CHECK(outcome.err.find("no such") != std::string::npos);
    CHECK_FALSE(fs::exists(folder.path() / "ck"));
    CHECK_FALSE(fs::exists(folder.path() / "r.json"));
  }

  TEST_CASE("a checkpoint that cannot be read is passed over with a warning, the one before is taken") {
    const Folder folder;
    REQUIRE(folder.train({"plan.json", "--steps", "12", "--save-weights", "whole"}).code == 0);
    REQUIRE(folder.train({"plan.json", "--steps", "8", "--checkpoint", "ck", "--every", "4"}).code == 0);
    REQUIRE(folder.names("ck").size() == 2);
    const std::string newest = folder.names("ck").back();
    const Outcome outcome =
        folder.train({"plan.json", "--steps", "12", "--resume", "ck", "--save-weights", "resumed"},
                     {"PP_FAULT_FILE=" + newest + "/weights.safetensors"});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.find("warning: ") != std::string::npos);
    CHECK(outcome.err.find(newest) != std::string::npos);
    CHECK(outcome.err.find("Input/output error") != std::string::npos);
    CHECK(pp::read_file(folder.path() / "resumed") == pp::read_file(folder.path() / "whole"));
  }
}
