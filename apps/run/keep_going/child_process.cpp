#include "apps/run/keep_going/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

#include "libprofile/core/error.h"

namespace pp::run_tool {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kChildLook(20);

/// In the child: becomes the program, or writes errno to `failure`.
[[noreturn]] void become(const std::vector<char*>& words, pid_t parent, int out, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGUSR1);  // launchers pass it on; ranks end with a checkpoint
  if (getppid() != parent) _exit(1);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  for (const int handled : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(handled, SIG_DFL);
  execvp(words.front(), words.data());
  const int why = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &why, sizeof why);
  _exit(1);
}

/// mpirun and srun end as a shell does: 128 + the signal that killed a rank.
ChildEnd end_of(int status) {
  constexpr int kShell = 128, kLastSignal = 64;
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  const int code = WEXITSTATUS(status);
  const bool interrupted = code == static_cast<int>(cli::ExitCode::interrupted);
  if (!interrupted && code > kShell && code <= kShell + kLastSignal) return {.signal = code - kShell};
  return {.code = code};
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, Stdout output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> failure{}, out{-1, -1};
  const bool piped = pipe2(failure.data(), O_CLOEXEC) == 0 &&
                     (output == Stdout::inherited || pipe2(out.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  std::cout.flush();
  const pid_t parent = getpid();
  pid_ = piped ? fork() : -1;
  if (pid_ < 0)
    throw Error(ErrorKind::run,
                command.front() + " cannot be started: " + std::strerror(errno) + "; close other programs");
  if (pid_ == 0) become(words, parent, out[1], failure[1]);
  setpgid(pid_, pid_);
  close(failure[1]);
  if (out[1] >= 0) close(out[1]);
  out_ = out[0];
  int why = 0;
  const bool failed = read(failure[0], &why, sizeof why) == sizeof why;
  close(failure[0]);
  if (!failed) return;
  waitpid(pid_, nullptr, 0);
  if (out_ >= 0) close(out_);
  throw Error(ErrorKind::usage, command.front() + ": " + std::strerror(why));
}

ChildProcess::~ChildProcess() {
  if (!ended_) end(Seconds());
  if (out_ >= 0) close(out_);
}

void ChildProcess::take_output() {
  std::array<char, 4096> piece{};
  while (out_ >= 0) {
    const ssize_t bytes = read(out_, piece.data(), piece.size());
    if (bytes <= 0) return;
    output_.append(piece.data(), static_cast<std::size_t>(bytes));
  }
}

std::optional<ChildEnd> ChildProcess::look() {
  if (ended_) return ended_;
  take_output();
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return std::nullopt;
  take_output();
  ended_ = end_of(status);
  return ended_;
}

void ChildProcess::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

ChildEnd ChildProcess::end(Seconds grace) {
  signal(SIGTERM);
  const Clock::time_point last = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace);
  while (!look() && Clock::now() < last) std::this_thread::sleep_for(kChildLook);
  if (!ended_) kill(-pid_, SIGKILL);
  while (!look()) std::this_thread::sleep_for(kChildLook);
  return *ended_;
}

}  // namespace pp::run_tool
