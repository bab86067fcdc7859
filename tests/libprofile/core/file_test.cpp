#include "libprofile/core/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace fs = std::filesystem;
namespace file_test {

using namespace pp;
using pp::test::error_text;

namespace {

/// A new empty folder that goes away with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "pp_file_test_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("libprofile/core/file") {
  TEST_CASE("what is written is read back, bytes and all") {
    const Folder folder;
    const std::string bytes("a\0b\r\n\xff", 6);
    write_file(folder / "x.bin", bytes);
    CHECK(read_file(folder / "x.bin") == bytes);
    CHECK((folder.names() == Names{"x.bin"}));
  }

  TEST_CASE("until commit() the old file stands, after it the new one") {
    const Folder folder;
    write_file(folder / "plan.json", "old");
    AtomicFile file(folder / "plan.json");
    file.write("new ");
    file.write("bytes");
    CHECK(read_file(folder / "plan.json") == "old");
    file.commit();
    CHECK(read_file(folder / "plan.json") == "new bytes");
    CHECK((folder.names() == Names{"plan.json"}));
  }

  TEST_CASE("without commit() nothing is left behind") {
    const Folder folder;
    {
      AtomicFile file(folder / "plan.json");
      file.write("half a docu");
      CHECK(!fs::exists(folder / "plan.json"));
    }
    CHECK(folder.names().empty());
  }

  TEST_CASE("a process that is killed while it writes leaves nothing behind") {
    const Folder folder;
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(folder / "plan.json");
      file.write("half a docu");
      ::raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(folder.names().empty());
  }

  TEST_CASE("a pipe that nobody reads is refused, one with a reader is written") {
    const Folder folder;
    const std::string path = (folder / "pipe").string();
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK(error_text([&] { return AtomicFile(path), 0; }) ==
          "[usage] " + path + ": cannot be written: no process reads this pipe; start its reader first");
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0);
    write_file(path, "plan");
    char bytes[8] = {};
    CHECK(::read(reader, bytes, sizeof bytes) == 4);
    CHECK(std::string(bytes) == "plan");
    ::close(reader);
    CHECK((folder.names() == Names{"pipe"}));
  }

  TEST_CASE("bytes are put where they belong, in any order, and nothing has a name before the commit") {
    const Folder folder;
    AtomicFile file(folder / "x");
    file.write("head");
    file.write_at(8, "last");
    file.write_at(4, "next");
    CHECK(folder.names().empty());
    file.commit();
    CHECK(read_file(folder / "x") == "headnextlast");
  }

  TEST_CASE("two writers of one file do not meet: the last commit stays") {
    const Folder folder;
    AtomicFile first(folder / "x");
    AtomicFile second(folder / "x");
    first.write("first");
    second.write("second");
    second.commit();
    first.commit();
    CHECK(read_file(folder / "x") == "first");
    CHECK((folder.names() == Names{"x"}));
  }

  TEST_CASE("a link keeps pointing to the file that is replaced") {
    const Folder folder;
    write_file(folder / "real", "old");
    fs::create_symlink(folder / "real", folder / "link");
    write_file(folder / "link", "new");
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(read_file(folder / "real") == "new");
  }

  TEST_CASE("a file keeps who may read it when it is replaced") {
    const Folder folder;
    write_file(folder / "private", "old");
    for (const auto mode : {fs::perms{0600}, fs::perms{0640}}) {
      fs::permissions(folder / "private", mode);
      write_file(folder / "private", "new");
      CHECK(fs::status(folder / "private").permissions() == mode);
    }
  }

  TEST_CASE("a device is written through, not replaced") {
    write_file("/dev/null", "gone");
    CHECK(fs::is_character_file("/dev/null"));
  }

  TEST_CASE("a folder that does not exist is found before the work") {
    const Folder folder;
    const std::string path = (folder / "no" / "plan.json").string();
    CHECK(error_text([&] { return AtomicFile(path), 0; }) ==
          "[usage] " + path + ": cannot be written: No such file or directory");
  }

  TEST_CASE("a folder is no file") {
    const Folder folder;
    const std::string path = (folder / "sub").string();
    fs::create_directory(path);
    CHECK(error_text([&] { return AtomicFile(path), 0; }) ==
          "[usage] " + path + ": cannot be written: Is a directory");
    CHECK(error_text([&] { return read_file(path); }) == "[data] " + path + ": cannot be read: Is a directory");
  }

  TEST_CASE("a missing file is named with the reason") {
    CHECK(error_text([] { return read_file("/nowhere/profile.json"); }) ==
          "[data] /nowhere/profile.json: cannot be read: No such file or directory");
  }

  TEST_CASE("a file above the limit is refused, one of exactly the limit is read") {
    const Folder folder;
    const std::string path = (folder / "x").string();
    write_file(path, std::string(100, 'x'));
    CHECK(read_file(path, 100).size() == 100);
    CHECK(error_text([&] { return read_file(path, 99); }) ==
          "[data] " + path + ": is larger than the limit of 99 bytes");
  }

  TEST_CASE("a full disk is a failed run") {
    if (!fs::exists("/dev/full")) {
      pp::test::skip("no /dev/full");
      return;
    }
    CHECK(error_text([] { return write_file("/dev/full", "x"), 0; }) ==
          "[run] /dev/full: cannot be written: No space left on device");
  }

  TEST_CASE("a file of lines begins anew with its first line, or goes on behind the last whole one") {
    const Folder folder;
    const fs::path path = folder / "x";
    write_file(path, "old\nhalf");
    { LineFile untouched(path, LineFile::Begin::anew); }
    CHECK(read_file(path) == "old\nhalf");
    {
      LineFile more(path, LineFile::Begin::at_the_end);
      more.append("new\n");
      CHECK(read_file(path) == "old\nnew\n");  // while it is still open
      more.append("er\n");
    }
    CHECK(read_file(path) == "old\nnew\ner\n");
    LineFile(path, LineFile::Begin::anew).append("first\n");
    CHECK(read_file(path) == "first\n");
    { LineFile unused(folder / "y", LineFile::Begin::anew); }
    CHECK(folder.names() == std::vector<std::string>{"x"});
  }

  TEST_CASE("a line that does not fit leaves nothing behind, and the lines before it stay") {
    const Folder folder;
    const fs::path path = folder / "x";
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // files of at most 8 bytes
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{8, 8};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      LineFile file(path, LineFile::Begin::anew);
      file.append("12345\n");
      try {
        file.append("6789\n");
      } catch (const Error& error) {
        ::_exit(error.kind() == ErrorKind::run ? 0 : 1);
      }
      ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(read_file(path) == "12345\n");
  }

  TEST_CASE("a file of lines that is deleted meanwhile, or cannot be made, says so") {
    const Folder folder;
    const fs::path path = folder / "x";
    LineFile file(path, LineFile::Begin::anew);
    file.append("1\n");
    fs::remove(path);
    CHECK(error_text([&] { return file.append("2\n"), 0; }) ==
          "[run] " + path.string() + ": cannot be written: it has been deleted or replaced");
    CHECK(error_text([] { return LineFile("/nowhere/x", LineFile::Begin::anew), 0; }) ==
          "[usage] /nowhere/x: cannot be written: No such file or directory");
  }

  TEST_CASE("writing after commit() is our own bug") {
    const Folder folder;
    const fs::path path = folder / "x";
    AtomicFile file(path);
    file.commit();
    CHECK(error_text([&] { return file.write("late"), 0; }) ==
          "[internal] " + path.string() + ": written after commit()");
    CHECK(error_text([&] { return file.commit(), 0; }) == "[internal] " + path.string() + ": committed twice");
  }
}

}  // namespace file_test
