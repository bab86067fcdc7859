#include "libprofile/device/machine.h"

#include <filesystem>
#include <string>

#include "libprofile/core/file.h"
#include "tests/support/process.h"

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

/// A machine's files, as Linux shows them.
struct Machine : pp::test::TemporaryFolder {
  Machine(const std::string& mounts, const std::string& groups) {
    write("proc/self/mountinfo", mounts);
    write("proc/self/cgroup", groups);
  }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path() / file).parent_path());
    write_file(path() / file, text);
  }
  GroupLimits limits() const { return group_limits(path()); }
};

const std::string kVersion2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kVersion1 =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

}  // namespace

TEST_SUITE("libprofile/device/control_groups") {
  TEST_CASE("a machine without groups, or with groups without limits, limits nothing") {
    CHECK(Machine("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "").limits() == GroupLimits{});
    const Machine machine(kVersion2, "0::/user.slice\n");
    machine.write("sys/fs/cgroup/user.slice/memory.max", "max\n");
    machine.write("sys/fs/cgroup/user.slice/memory.current", "1000\n");
    machine.write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    CHECK(machine.limits() == GroupLimits{});
  }

  // As under Slurm: the job has 4 GB, its step no limit of its own.
  TEST_CASE("version 2: the smallest limit on the way to the root counts, and the least that is left") {
    const Machine machine(kVersion2, "0::/system.slice/job_7/step_0\n");
    const std::string top = "sys/fs/cgroup/system.slice/";
    machine.write(top + "memory.max", "16000000000\n");
    machine.write(top + "memory.current", "13000000000\n");
    machine.write(top + "cpu.max", "800000 100000\n");
    machine.write(top + "job_7/memory.max", "4000000000\n");
    machine.write(top + "job_7/memory.current", "500000000\n");
    machine.write(top + "job_7/cpu.max", "250000 100000\n");
    machine.write(top + "job_7/step_0/memory.max", "max\n");
    machine.write(top + "job_7/step_0/cpu.max", "max 100000\n");
    machine.write("sys/fs/cgroup/memory.max", "1\n");  // of a namespace: the root of what is seen counts, too
    CHECK(machine.limits().memory_bytes == 1);
    std::filesystem::remove(machine.path() / "sys/fs/cgroup/memory.max");
    // The job has 3.5 GB left, all of the machine's jobs together 3 GB.
    CHECK(machine.limits() == GroupLimits{4000000000, 3000000000, 2.5});
    // 0.7 GB of what they use are files that nobody reads.
    machine.write(top + "memory.stat", "anon 1\ninactive_file 700000000\n");
    CHECK(machine.limits().memory_left == 3500000000);
  }

  TEST_CASE("version 1: each controller has a hierarchy of its own") {
    const Machine machine(kVersion1, "4:memory:/slurm/uid_1/job_7\n3:cpu,cpuacct:/slurm\n1:name=systemd:/\n");
    const std::string memory = "sys/fs/cgroup/memory/slurm/uid_1/job_7/";
    machine.write(memory + "memory.limit_in_bytes", "2000000000\n");
    machine.write(memory + "memory.usage_in_bytes", "1500000000\n");
    machine.write(memory + "memory.stat", "inactive_file 5\ntotal_inactive_file 100000000\n");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "150000\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK(machine.limits() == GroupLimits{2000000000, 600000000, 1.5});
  }

  // Kubernetes: without a namespace for groups the pod's own is mounted as the top; with one it is called `/`.
  TEST_CASE("a container that sees its own group as the top") {
    for (const char* own : {"/kubepods/pod1/c1", "/", "/../c1"}) {
      const std::string top = std::string(own) == "/kubepods/pod1/c1" ? own : "/";
      const Machine machine("30 23 0:26 " + top + " /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                            "0::" + std::string(own) + "\n");
      machine.write("sys/fs/cgroup/memory.max", "1000000\n");
      machine.write("sys/fs/cgroup/memory.current", "400000\n");
      machine.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
      CHECK(machine.limits() == GroupLimits{1000000, 600000, 2});
    }
  }

  TEST_CASE("a quota counts as whole cores, at least one, at most those allowed") {
    CHECK(cores_within(64, std::nullopt) == 64);
    CHECK(cores_within(64, 2.0) == 2);
    CHECK(cores_within(64, 2.9) == 2);
    CHECK(cores_within(64, 0.5) == 1);
    CHECK(cores_within(2, 8.0) == 2);
  }
}

}  // namespace pp::profile
