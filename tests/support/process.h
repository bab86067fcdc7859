// Runs a program and keeps what it said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pp::test {

struct Outcome {
  int code = 0;  ///< exit code, or 128 + signal
  std::string out;
  std::string err;
  std::int64_t peak_bytes = 0;  ///< largest resident size
};

/// What happens to a program besides its arguments.
struct Circumstances {
  int signal = 0;             ///< sent once, 0: none
  std::string signal_when{};  ///< after stderr has this text
  int broken = -1;            ///< a descriptor that is a pipe whose reader has gone; -1: none
  int columns = 0;            ///< of the terminal that stderr is; 0: it is a file
};

/// `program` with `arguments`, in `folder`, standard input closed.
Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, const Circumstances& circumstances = {});

/// Whether `Circumstances::columns` can be had: the system has pseudo terminals (/dev/ptmx and /dev/pts).
bool has_terminals();

/// A new folder that disappears with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace pp::test
