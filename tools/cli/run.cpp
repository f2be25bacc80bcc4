// SPDX-License-Identifier: Apache-2.0
// From a tool's body to an exit status: exceptions, an output that can't be written, signals.
#include <cerrno>
#include <csignal>
#include <exception>
#include <new>

#include "cli/heap.hpp"
#include "cli/program.hpp"
#include "cli/signals.hpp"

namespace ckpt::cli {
namespace {

int status_of_error(Program& program, const Error& error) {
  if (pending_signal() != 0) return exit_trouble;
  if (error.system_errno() == EPIPE && dies_of_broken_pipe()) {
    raise_again(SIGPIPE);
  }
  program.messages().error(error);
  return exit_status_of(error.code());
}

template <class F>
int guarded(Program& program, F body) {
  try {
    return body();
  } catch (const Error& error) {
    return status_of_error(program, error);
  } catch (const std::bad_alloc&) {
    program.messages().error("out of memory");
  } catch (const std::exception& error) {
    program.messages().error(error.what());
  }
  return exit_trouble;
}

}  // namespace

int run(ToolInfo info, int argc, char** argv, int (*body)(Program&)) {
  prefer_huge_pages();
  occupy_standard_descriptors();
  catch_signals();
  Program program(std::move(info), {argv + (argc > 0 ? 1 : 0), argv + argc});
  int status = guarded(program, [&] { return body(program); });
  program.messages().erase_transient();
  const int closing = guarded(program, [&] {
    program.output().close();
    return exit_done;
  });
  status = worse_of(status, closing);
  if (const int signal = pending_signal(); signal != 0) raise_again(signal);
  return status;
}

}  // namespace ckpt::cli
