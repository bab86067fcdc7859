// Runs a program and keeps what it said.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pp::test {

struct Outcome {
  int code = 0;  ///< exit code, or 128 + signal
  std::string out;
  std::string err;
};

/// `program` with `arguments`, in `folder`, standard input closed; `interrupt_after_ms` > 0: SIGINT after so
/// long.
Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, int interrupt_after_ms = 0);

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
