// Where an operation failed.
#pragma once

#include <string>
#include <utility>

#include "libplan/schedule/program.h"
#include "libprofile/core/error.h"
#include "libprofile/model/errors.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

/// Calls `body`. Whatever it throws, but for Stopped, becomes a failure of the run that says where: pp::Error
/// (run), or OutOfMemory as it was.
template <class Body>
void located(WorkerId worker, const plan::Op& op, Body&& body) {
  const auto with_place = [&](auto failure) {
    failure.add_context(plan::to_text(op));
    if (op.kind != plan::OpKind::tied_all_reduce)
      failure.add_context("stage " + std::to_string(number(op.stage)));
    failure.add_context("worker " + std::to_string(number(worker)));
    return failure;
  };
  try {
    try {
      body();
    } catch (const Stopped&) {
      throw;
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  } catch (const model::OutOfMemory& error) {
    throw with_place(model::OutOfMemory(error.what()));
  } catch (const Error& error) {
    throw with_place(Error(ErrorKind::run, error.what()));
  }
}

}  // namespace pp::run
