// SIGINT, SIGTERM and SIGHUP as a flag that the tools poll: the current step is finished and results are
// written.
#pragma once

namespace pp::cli {

/// Installs the handlers. The same signal again, or another one a second later, ends the process at once with
/// 130: SIGINT of a terminal and the SIGTERM with which a launcher follows it are one wish.
void catch_interrupts();
bool interrupted();
/// The first of them; 0: none has come.
int interruption();

}  // namespace pp::cli
