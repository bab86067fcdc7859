// SIGINT, SIGTERM and SIGHUP as a flag that the tools poll: the current step is finished and results are
// written.
#pragma once

namespace pp::cli {

/// Installs the handlers; a second signal ends the process at once with 130.
void catch_interrupts();
bool interrupted();

}  // namespace pp::cli
