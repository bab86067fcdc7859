// A long row of cases, each decided by one number, in a child process with an eye on it: a case that crashes,
// hangs, takes too much memory or gives a wrong answer is a finding; the next case goes on in a new child.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace pp::fuzz {

/// What became of a case.
struct Result {
  std::size_t category = 0;  ///< of Campaign::categories
  std::string finding;       ///< what is wrong; empty: nothing
};

/// Where a case leaves its files and says what it is about to do; both are kept with a finding.
class Case {
 public:
  Case(std::uint64_t seed, std::filesystem::path folder, char* doing, std::size_t room)
      : seed_(seed), folder_(std::move(folder)), doing_(doing), room_(room) {}
  std::uint64_t seed() const { return seed_; }
  const std::filesystem::path& folder() const { return folder_; }
  void doing(const std::string& text);

 private:
  std::uint64_t seed_;
  std::filesystem::path folder_;
  char* doing_;
  std::size_t room_;
};

struct Campaign {
  std::string name;                                   ///< of the program, for messages
  std::vector<std::string> categories;                ///< counted and printed
  int cpu_seconds = 20;                               ///< of one case
  std::int64_t memory_bytes = std::int64_t{2} << 30;  ///< peak of the process; sanitizers: four times that
  std::function<Result(Case&)> run;  ///< in the child; an exception that leaves it is a finding
};

/// The whole of main(): `--count N --seconds N --seed N --keep FOLDER`, or `--replay SEED`, which runs one case
/// in this process. Prints findings as they come and the counts at the end. Returns 1 with findings, 2 for
/// wrong arguments.
int run_campaign(const Campaign& campaign, int argc, char** argv);

}  // namespace pp::fuzz
