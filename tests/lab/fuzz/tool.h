// pp-plan in this process: its own commands and options, without the cost of a new process for every document.
#pragma once

#include <string>
#include <vector>

namespace pp::fuzz {

struct Ran {
  int code = 0;
  std::string out;
  std::string err;  ///< what the tool says of errors; warnings go to the process's stderr
};

Ran run_pp_plan(std::vector<std::string> arguments);

/// What is wrong with how a command ended, whatever it was given: an exit code that is none of done, bad input
/// and infeasible, a refusal without words, words that move a terminal's cursor, figures that are none. Empty:
/// nothing.
std::string wrong_end(const Ran& ran);

}  // namespace pp::fuzz
