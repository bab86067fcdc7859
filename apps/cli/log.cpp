#include "apps/cli/log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <iostream>

#include "apps/cli/terminal_text.h"

namespace pp::cli {

void configure_log(const Shell& shell) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(std::cerr, /*force_flush=*/true);
  auto logger = std::make_shared<spdlog::logger>(shell.tool, std::move(sink));
  logger->set_pattern("%n: %l: %v");
  logger->set_level(shell.quiet           ? spdlog::level::err
                    : shell.verbosity > 0 ? spdlog::level::debug
                                          : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void inform(std::string_view text) { spdlog::info(escaped(text, Keep::continued)); }
void warn(std::string_view text) { spdlog::warn(escaped(text, Keep::continued)); }

}  // namespace pp::cli
