// The subcommands of pp-profile, one file each.
#pragma once

#include <string_view>

#include "apps/cli/shell.h"
#include "libprofile/core/profile.h"

namespace pp::profile_tool {

/// What a chrome trace by PyTorch's profiler says: `sizes` with the times of its blocks, one micro-batch size
/// alone. `batch_size`: samples of a micro-batch; 0: as the trace's shapes say. Throws pp::Error: data for a
/// trace without what is needed, usage where `sizes` is of another model or device.
Profile import_kineto(std::string_view text, const Profile& sizes, int batch_size);

void add_run(const cli::Command& app, cli::Shell& shell);
void add_estimate(const cli::Command& app, cli::Shell& shell);
void add_fit(const cli::Command& app, cli::Shell& shell);
void add_links(const cli::Command& app, cli::Shell& shell);
void add_models(const cli::Command& app, cli::Shell& shell);
void add_show(const cli::Command& app, cli::Shell& shell);
void add_diff(const cli::Command& app, cli::Shell& shell);
void add_merge(const cli::Command& app, cli::Shell& shell);
void add_import(const cli::Command& app, cli::Shell& shell);
void add_schema(const cli::Command& app, cli::Shell& shell);
void add_values(const cli::Command& app, cli::Shell& shell);

}  // namespace pp::profile_tool
