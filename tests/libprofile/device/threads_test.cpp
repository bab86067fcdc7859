#include "libprofile/device/process.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/torch_test.h"

using pp::profile::enter_worker_thread;

namespace {

/// What `work` writes to stderr.
std::string written_by(const std::function<void()>& work) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int before = dup(STDERR_FILENO);
  std::fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  work();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::fseek(file, 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_SUITE("libprofile/device/threads") {
  TEST_CASE("threads say a warning of LibTorch once, all of them together") {
    const std::string text = written_by([] {
      for (int i = 0; i < 2; ++i) {
        std::thread([] {
          enter_worker_thread(1);
          for (int j = 0; j < 2; ++j) TORCH_WARN("the kettle is hot");
          TORCH_WARN("the kettle is cold");
        }).join();
      }
    });
    const std::size_t hot = text.find("the kettle is hot");
    REQUIRE(hot != std::string::npos);
    CHECK(text.find("the kettle is hot", hot + 1) == std::string::npos);
    CHECK(text.find("the kettle is cold") != std::string::npos);
  }

  TEST_CASE("the settings hold in the calling thread only") {
    const int before = at::get_num_threads();
    const bool engine_threads_before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    int inside = 0;
    bool engine_threads = true;
    std::thread([&] {
      enter_worker_thread(1);
      inside = at::get_num_threads();
      engine_threads = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    }).join();
    CHECK(inside == 1);
    CHECK_FALSE(engine_threads);
    CHECK(at::get_num_threads() == before);
    CHECK(c10::AutogradState::get_tls_state().get_multithreading_enabled() == engine_threads_before);
  }
}
