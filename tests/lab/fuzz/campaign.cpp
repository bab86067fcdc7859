#include "tests/lab/fuzz/campaign.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <execinfo.h>
#include <fcntl.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <string_view>
#include <thread>

#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostCategories = 64;
constexpr int kWrong = 42, kTooLarge = 43;  // exit codes of the child
constexpr std::chrono::seconds kMostWall{180};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSanitizerFactor = 4;
#else
constexpr int kSanitizerFactor = 1;
#endif

/// What child and parent share.
struct Shared {
  std::atomic<std::uint64_t> next;  ///< number of the case that is running, or comes next
  std::array<std::atomic<std::uint64_t>, kMostCategories> counts;
  std::array<char, 4096> doing;
  std::array<char, 4096> finding;
  rusage before;  ///< of the child, when the case began
};

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t count = ~std::uint64_t{0};
  double seconds = 1e9;
  fs::path keep = "fuzz-findings";
  bool replay = false;
};

void put(std::array<char, 4096>& place, std::string_view text) {
  const std::size_t size = std::min(text.size(), place.size() - 1);
  std::memcpy(place.data(), text.data(), size);
  place[size] = '\0';
}

std::string hex(std::uint64_t value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::uint64_t seed_of(const Options& options, std::uint64_t number) {
  return Random(options.seed * 0x2545f4914f6cdd1du + number).next();
}

/// In memory where the system has such a place: every document is flushed to it.
fs::path make_folder() {
  const fs::path base = access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (base / "pp-fuzz-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder in " + base.string());
  return name;
}

void empty_folder(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path());
}

/// On SIGXCPU: says where the case is, and ends the child by it.
void show_stack(int signal) {
  std::array<void*, 64> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// SIGXCPU when a case has used its seconds. Not RLIMIT_CPU, which counts ticks of the clock, whoever of
/// several processes they meet: over minutes tens of seconds more than a process has run.
class CpuLimit {
 public:
  CpuLimit() {
    std::array<void*, 1> loads_what_unwinds{};  // which a handler may not
    backtrace(loads_what_unwinds.data(), 1);
    std::signal(SIGXCPU, show_stack);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGXCPU;
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer_) != 0) std::_Exit(1);
  }
  void set(int seconds) {
    const itimerspec once{{0, 0}, {seconds, 0}};
    timer_settime(timer_, 0, &once, nullptr);
  }

 private:
  timer_t timer_{};
};

std::int64_t peak_bytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return std::int64_t{used.ru_maxrss} * 1024;
}

Result run_case(const Campaign& campaign, Case& one) {
  try {
    return campaign.run(one);
  } catch (const std::exception& error) {
    return {0, std::string("an exception leaves the library: ") + error.what()};
  }
}

/// The child: cases from shared.next on until the end, or a finding, which only a new child can forget.
[[noreturn]] void child(const Campaign& campaign, const Options& options, Shared& shared,
                        const fs::path& folder, Clock::time_point end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int log = open((folder / "stderr.txt").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
  if (log >= 0) dup2(log, STDERR_FILENO);
  fs::current_path(folder);
  CpuLimit limit;
  for (; shared.next < options.count && Clock::now() < end; ++shared.next) {
    if (ftruncate(STDERR_FILENO, 0) != 0) std::_Exit(1);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename() != "stderr.txt") fs::remove_all(entry.path());
    }
    Case one(seed_of(options, shared.next), folder, shared.doing.data(), shared.doing.size());
    one.doing("");
    limit.set(campaign.cpu_seconds * kSanitizerFactor);
    getrusage(RUSAGE_SELF, &shared.before);
    const Result result = run_case(campaign, one);
    ++shared.counts[result.category];
    put(shared.finding, result.finding);
    if (!result.finding.empty()) std::_Exit(kWrong);
    if (peak_bytes() > campaign.memory_bytes * kSanitizerFactor) std::_Exit(kTooLarge);
  }
  std::_Exit(0);
}

std::int64_t resident_bytes(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// Waits for the child's end; kills it when a case takes more memory or time than it may. Returns why it ended;
/// empty: all cases are done.
std::string watch(const Campaign& campaign, Shared& shared, pid_t process) {
  std::uint64_t last = shared.next;
  Clock::time_point since = Clock::now();
  std::string killed;
  for (int status = 0;;) {
    rusage used{};
    if (wait4(process, &status, WNOHANG, &used) == process) {
      if (!killed.empty()) return killed;
      if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        if (signal == SIGXCPU)
          return "hang: more than " + std::to_string(campaign.cpu_seconds) + " s of CPU time, " +
                 std::to_string(used.ru_stime.tv_sec - shared.before.ru_stime.tv_sec) +
                 " s of them the system's";
        return std::string("crash: ") + strsignal(signal);
      }
      const int code = WEXITSTATUS(status);
      if (code == 0) return "";
      if (code == kWrong) return shared.finding.data();
      return code == kTooLarge ? "memory: the peak was beyond the limit"
                               : "crash: exit code " + std::to_string(code);
    }
    if (shared.next != last) {
      last = shared.next;
      since = Clock::now();
    }
    const bool large = resident_bytes(process) > campaign.memory_bytes * kSanitizerFactor;
    if (killed.empty() && (large || Clock::now() - since > kMostWall * kSanitizerFactor)) {
      killed = large ? "memory: killed at the limit" : "hang: no end after 180 s";
      kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Findings with the same text but for numbers and names are one.
std::string kind_of(const std::string& finding, const std::string& doing) {
  std::string kind;
  for (const char c : finding.substr(0, std::min<std::size_t>(finding.find('\n'), 160)) + '|' +
                          doing.substr(0, doing.find(' ', doing.find(' ') + 1))) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) kind += c;
  }
  return kind;
}

class Findings {
 public:
  Findings(const Campaign& campaign, const Options& options) : campaign_(campaign), options_(options) {}

  void add(std::uint64_t seed, const std::string& finding, const Shared& shared, const fs::path& folder) {
    ++count_;
    const std::string doing = shared.doing.data();
    if (kinds_[kind_of(finding, doing)]++ > 0) return;
    const fs::path kept = options_.keep / (campaign_.name + "-" + hex(seed));
    fs::create_directories(options_.keep);
    fs::remove_all(kept);
    fs::copy(folder, kept, fs::copy_options::recursive);
    std::ofstream(kept / "finding.txt") << finding << '\n' << doing << '\n';
    std::cout << campaign_.name << ": finding: " << finding << "\n  doing: " << doing << "\n  --replay "
              << hex(seed) << ", files in " << kept.string() << std::endl;
  }
  std::uint64_t count() const { return count_; }
  std::size_t kinds() const { return kinds_.size(); }

 private:
  const Campaign& campaign_;
  const Options& options_;
  std::map<std::string, int> kinds_;
  std::uint64_t count_ = 0;
};

int run_all(const Campaign& campaign, const Options& options) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  Shared& shared = *new (memory) Shared{};
  const fs::path folder = make_folder();
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  Findings findings(campaign, options);
  while (shared.next < options.count && Clock::now() < end) {
    empty_folder(folder);
    std::cout.flush();
    const pid_t process = fork();
    if (process == 0) child(campaign, options, shared, folder, end);
    if (process < 0) throw std::runtime_error("no process can be started");
    const std::string why = watch(campaign, shared, process);
    if (why.empty()) break;
    findings.add(seed_of(options, shared.next), why, shared, folder);
    ++shared.next;
  }
  fs::remove_all(folder);
  std::cout << campaign.name << ": " << shared.next << " cases in "
            << std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count() << " s\n";
  for (std::size_t i = 0; i < campaign.categories.size(); ++i) {
    if (shared.counts[i] > 0) std::cout << "  " << campaign.categories[i] << ": " << shared.counts[i] << '\n';
  }
  std::cout << campaign.name << ": " << findings.count() << " findings of " << findings.kinds() << " kinds"
            << std::endl;
  return findings.count() > 0 ? 1 : 0;
}

/// In this process, so that a debugger and a sanitizer see it; the files stay in the folder.
int replay(const Campaign& campaign, const Options& options) {
  const fs::path folder = make_folder();
  fs::current_path(folder);
  std::array<char, 4096> doing{};
  Case one(options.seed, folder, doing.data(), doing.size());
  std::cout << campaign.name << ": files in " << folder.string() << std::endl;
  const Result result = run_case(campaign, one);
  std::cout << campaign.name << ": " << campaign.categories[result.category] << "; last: " << doing.data()
            << "\n  " << (result.finding.empty() ? "no finding" : "finding: " + result.finding) << std::endl;
  return result.finding.empty() ? 0 : 1;
}

bool parse(int argc, char** argv, Options& options) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 0);
    } else if (name == "--replay") {
      options.seed = std::strtoull(value, nullptr, 0);
      options.replay = true;
    } else if (name == "--count") {
      options.count = std::strtoull(value, nullptr, 0);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--keep") {
      options.keep = fs::absolute(value);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

void Case::doing(const std::string& text) {
  const std::size_t size = std::min(text.size(), room_ - 1);
  std::memcpy(doing_, text.data(), size);
  doing_[size] = '\0';
}

int run_campaign(const Campaign& campaign, int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::cerr << "usage: " << campaign.name
              << " [--count N] [--seconds N] [--seed N] [--keep FOLDER] | --replay SEED\n";
    return 2;
  }
  return options.replay ? replay(campaign, options) : run_all(campaign, options);
}

}  // namespace pp::fuzz
