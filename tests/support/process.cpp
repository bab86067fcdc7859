#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace pp::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void redirect(const std::filesystem::path& path, int flags, int descriptor) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
  close(file);
}

/// `descriptor` becomes a pipe that nobody reads.
void break_pipe(int descriptor) {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], descriptor) < 0) _exit(126);
  close(ends[0]);
  close(ends[1]);
}

/// Until the file has the text or the process has ended.
void wait_for_text(const std::filesystem::path& file, const std::string& text, pid_t process) {
  siginfo_t ended{};
  while (contents(file).find(text) == std::string::npos) {
    waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, const Circumstances& circumstances) {
  const TemporaryFolder streams;
  const std::filesystem::path out = streams.path() / "out";
  const std::filesystem::path err = streams.path() / "err";
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    if (chdir(folder.c_str()) != 0) _exit(126);
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(err, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    if (circumstances.broken >= 0) break_pipe(circumstances.broken);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  if (circumstances.signal != 0) {
    wait_for_text(err, circumstances.signal_when, child);
    kill(child, circumstances.signal);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, contents(out), contents(err), std::int64_t{usage.ru_maxrss} << 10};
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "pp-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace pp::test
