// Disks that fail under a training: what it says, how it ends, which files it leaves.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/librun/data_bytes.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"

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
                   pp::test::safetensors_bytes(header, pp::test::bytes_of(y) + pp::test::bytes_of(x)));
  }

  /// pp-run on these samples, its reads failing as `faults` say.
  Outcome train(Arguments arguments, Arguments faults = {}) const {
    if (!faults.empty()) faults.push_back("LD_PRELOAD=" PP_FAULTY_DISK);
    faults.push_back(tool().string());
    faults.insert(faults.end(), arguments.begin(), arguments.end());
    faults.insert(faults.end(), {"--data", "data.safetensors", "--no-evaluate"});
    return pp::test::run_checked("/usr/bin/env", faults, path());
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
    const Outcome outcome =
        folder.train(cut, {"PP_FAULT_CALL=read", "PP_FAULT_FILE=data.safetensors", "PP_FAULT_AFTER=200"});
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
    const Outcome outcome = folder.train(
        {"plan.json", "--epochs", "3", "--save-weights", "w", "--stall-timeout", "3s"},
        {"PP_FAULT_CALL=read", "PP_FAULT_FILE=data.safetensors", "PP_FAULT_AFTER=200", "PP_FAULT_HOW=hang"});
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
    REQUIRE(folder.names("ck").size() == 3);  // .lock is one
    const std::string newest = folder.names("ck").back();
    const Outcome outcome =
        folder.train({"plan.json", "--steps", "12", "--resume", "ck", "--save-weights", "resumed"},
                     {"PP_FAULT_CALL=read", "PP_FAULT_FILE=" + newest + "/weights.safetensors"});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.find("warning: ") != std::string::npos);
    CHECK(outcome.err.find(newest) != std::string::npos);
    CHECK(outcome.err.find("Input/output error") != std::string::npos);
    CHECK(pp::read_file(folder.path() / "resumed") == pp::read_file(folder.path() / "whole"));
  }

  // Each call of a kind that a writer of checkpoints makes in its folder, until it makes no more of them.
  TEST_CASE(
      "a writer killed before its k-th write, fsync, rename or mkdir, for all k, goes on to the same files") {
    const auto write = [](const fs::path& folder, Arguments faults) {
      faults.insert(faults.end(), {pp::test::program("checkpoint_writer"), (folder / "ck").string()});
      return pp::test::run_checked("/usr/bin/env", faults, folder);
    };
    const auto files = [](const fs::path& folder) {
      std::map<std::string, std::string> all;
      for (const auto& entry : fs::recursive_directory_iterator(folder / "ck")) {
        const bool file =
            entry.is_regular_file() && entry.path().filename() != ".lock";  // which names its process
        all[fs::relative(entry.path(), folder).string()] = file ? pp::read_file(entry.path()) : "no file";
      }
      return all;
    };
    const pp::test::TemporaryFolder whole;
    REQUIRE(write(whole.path(), {}).code == 0);
    const auto expected = files(whole.path());
    REQUIRE(expected.contains("ck/step-12/manifest.json"));
    REQUIRE(expected.size() == 9);  // .lock, two folders of three files
    std::map<std::string, int> kills;
    for (const std::string call : {"write", "fsync", "rename", "mkdir"}) {
      CAPTURE(call);
      for (int k = 0;; ++k) {
        CAPTURE(k);
        REQUIRE(k < 200);
        const pp::test::TemporaryFolder folder;
        const Outcome killed =
            write(folder.path(), {"LD_PRELOAD=" PP_FAULTY_DISK, "PP_FAULT_FILE=/ck", "PP_FAULT_HOW=kill",
                                  "PP_FAULT_CALL=" + call, "PP_FAULT_AFTER=" + std::to_string(k)});
        if (killed.code == 0) break;
        REQUIRE(killed.code == 128 + SIGKILL);
        ++kills[call];
        const Outcome resumed = write(folder.path(), {});
        CHECK(resumed.err == "");
        // The third oldest may stand until the next checkpoint is made.
        auto found = files(folder.path());
        std::erase_if(found, [](const auto& file) { return file.first.starts_with("ck/step-4"); });
        CHECK(found == expected);
      }
    }
    // Of each of three checkpoints: two files of tensors and the manifest are renamed, then the folder, which
    // is made once; the files are flushed, and the folders after each change. One folder for all.
    CHECK(kills["rename"] == 3 * 4);
    CHECK(kills["mkdir"] == 1 + 3);
    CHECK(kills["fsync"] >= 3 * 7);
    CHECK(kills["write"] >= 3 * 5);
  }

  TEST_CASE(
      "a training killed before it renames a part, a manifest and a checkpoint goes on to the same bytes") {
    const Folder folder;
    const Arguments what{"plan.json", "--steps", "8", "--momentum", "0.9", "--save-weights"};
    const auto with = [&](const std::string& name, const Arguments& more) {
      Arguments all = what;
      all.push_back(name);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    REQUIRE(folder.train(with("whole", {})).code == 0);
    for (const std::string k : {"1", "6", "7"}) {
      const std::string ck = "ck" + k;
      const Arguments same{"--checkpoint", ck, "--resume", ck, "--every", "3"};
      const Outcome killed = folder.train(with("w" + k, same), {"PP_FAULT_FILE=/" + ck, "PP_FAULT_CALL=rename",
                                                                "PP_FAULT_AFTER=" + k, "PP_FAULT_HOW=kill"});
      CHECK(killed.code == 128 + SIGKILL);
      CHECK(folder.train(with("w" + k, same)).code == 0);
      CHECK(pp::read_file(folder.path() / ("w" + k)) == pp::read_file(folder.path() / "whole"));
    }
  }

  TEST_CASE("a disk that never answers a flush of a checkpoint: the stall is named, and the process ends") {
    const Folder folder;
    const Outcome outcome = folder.train(
        {"plan.json", "--steps", "8", "--checkpoint", "ck", "--every", "2", "--stall-timeout", "300ms"},
        {"PP_FAULT_FILE=/ck", "PP_FAULT_CALL=fsync", "PP_FAULT_AFTER=3", "PP_FAULT_HOW=hang"});
    CHECK(outcome.code == 1);
    CHECK(outcome.err.find("pp-run: error: stalled: ") != std::string::npos);
    CHECK(outcome.err.find("the thread that writes checkpoints and weights; look at the disk") !=
          std::string::npos);
  }

  // The manifest of the second checkpoint cannot be renamed, all else can.
  TEST_CASE("a checkpoint that cannot be written is a warning: the training ends whole, with exit code 1") {
    const Folder folder;
    REQUIRE(folder.train({"plan.json", "--steps", "8", "--save-weights", "whole"}).code == 0);
    const Arguments what{"plan.json", "--steps", "8",  "--save-weights", "w", "--checkpoint", "ck",
                         "--every",   "3",       "-o", "r.json"};
    const Outcome outcome =
        folder.train(what, {"PP_FAULT_FILE=.unfinished-step-6/manifest", "PP_FAULT_CALL=rename"});
    CHECK(outcome.code == 1);
    CHECK(outcome.err.find(
              "checkpoint of step 6: ck/.unfinished-step-6/manifest.json: cannot be replaced: "
              "Input/output error; make room, the last whole checkpoint is of step 3: --resume ck goes "
              "on from it\n") != std::string::npos);
    CHECK(outcome.out.find("8 steps, not_written") != std::string::npos);
    CHECK(folder.names("ck") == std::vector<std::string>{".lock", "step-3", "step-8"});
    CHECK(pp::read_file(folder.path() / "w") == pp::read_file(folder.path() / "whole"));
    CHECK(fs::exists(folder.path() / "r.json"));
  }

  TEST_CASE(
      "a rank whose part of a checkpoint cannot be written: there is none of that step, and all is said") {
    if (std::string_view(PP_MPIRUN).empty()) return pp::test::skip("built without MPI");
    const Folder folder;
    REQUIRE(folder.train({"plan.json", "--steps", "8", "--save-weights", "whole"}).code == 0);
    // Rank 1's weights of step 3 cannot get their name.
    const Outcome outcome = pp::test::run_checked("/usr/bin/env",
                                                  {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                                   "OMPI_MCA_rmaps_base_oversubscribe=1",
                                                   "LD_PRELOAD=" PP_FAULTY_DISK,
                                                   "PP_FAULT_CALL=link",
                                                   "PP_FAULT_FILE=.unfinished-step-3/weights-1",
                                                   PP_MPIRUN,
                                                   "-n",
                                                   "2",
                                                   Folder::tool().string(),
                                                   "plan.json",
                                                   "--data",
                                                   "data.safetensors",
                                                   "--no-evaluate",
                                                   "--steps",
                                                   "8",
                                                   "--checkpoint",
                                                   "ck",
                                                   "--every",
                                                   "3",
                                                   "--save-weights",
                                                   "w"},
                                                  folder.path());
    CHECK(outcome.code == 1);
    CHECK(
        outcome.err.find("checkpoint of step 3: rank 1: ck/.unfinished-step-3/weights-1.safetensors: cannot be "
                         "written: Input/output error; make room, there is no checkpoint to go on from\n") !=
        std::string::npos);
    CHECK(folder.names("ck") == std::vector<std::string>{".lock", "step-6", "step-8"});
    CHECK(pp::read_file(folder.path() / "w") == pp::read_file(folder.path() / "whole"));
  }

  TEST_CASE("a folder that cannot be flushed: what was put into it may not last, which is an error") {
    const Folder folder;
    const Outcome checkpoint = folder.train({"plan.json", "--steps", "3", "--checkpoint", "ck"},
                                            {"PP_FAULT_FILE=/ck/.unfinished-step-3", "PP_FAULT_CALL=fsync",
                                             "PP_FAULT_AFTER=4", "PP_FAULT_TIMES=1"});
    CHECK(checkpoint.code == 1);
    CHECK(checkpoint.err.find(
              "checkpoint of step 3: ck/.unfinished-step-3: cannot be flushed: Input/output error") !=
          std::string::npos);
    CHECK(folder.names("ck") == std::vector<std::string>{".lock"});
    // The report itself is flushed first, then its folder.
    const Outcome report =
        folder.train({"plan.json", "--steps", "3", "-o", "r.json"},
                     {"PP_FAULT_FILE=" + folder.path().string(), "PP_FAULT_CALL=fsync", "PP_FAULT_AFTER=1"});
    CHECK(report.code == 1);
    CHECK(report.err.find("r.json: may not survive a power failure, its folder cannot be flushed: Input/output "
                          "error\n") != std::string::npos);
  }

  TEST_CASE("weights, a report or a trace that cannot be written lose nothing else") {
    const Folder folder;
    const std::string full = "No space left on device";
    const Outcome weights = folder.train(
        {"plan.json", "--steps", "4", "--save-weights", "/dev/full", "-o", "r.json", "--trace", "t.json"});
    CHECK(weights.code == 1);
    CHECK(weights.err.find("the trained weights are lost: /dev/full: cannot be written: " + full +
                           "; there is no checkpoint to go on from") != std::string::npos);
    CHECK(weights.out.find("4 steps, not_written") != std::string::npos);
    CHECK(fs::exists(folder.path() / "r.json"));
    CHECK(fs::exists(folder.path() / "t.json"));
    const Outcome report = folder.train(
        {"plan.json", "--steps", "4", "--save-weights", "w", "-o", "/dev/full", "--trace", "u.json"});
    CHECK(report.code == 1);
    CHECK(report.err.find("pp-run: error: the training is done, but /dev/full: cannot be written: " + full) !=
          std::string::npos);
    CHECK(report.out.find("4 steps, completed") != std::string::npos);
    CHECK(fs::exists(folder.path() / "u.json"));
    CHECK(fs::exists(folder.path() / "w"));
  }
}
