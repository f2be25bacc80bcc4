// SPDX-License-Identifier: Apache-2.0
// Preloaded into a command under test: a host whose wall clock is wrong by $CKPT_CLOCK_SKEW seconds. The file system
// keeps its own time, as a server does.
#include <dlfcn.h>
#include <sys/time.h>
#include <ctime>

#include <cstdlib>

namespace {

time_t skew() {
  const char* const text = getenv("CKPT_CLOCK_SKEW");
  return text == nullptr ? 0 : static_cast<time_t>(atoll(text));
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* result) noexcept {
  static auto* const next = real<int(clockid_t, timespec*)>("clock_gettime");
  const int done = next(clock, result);
  if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) result->tv_sec += skew();
  return done;
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* result, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  result->tv_sec = now.tv_sec;
  result->tv_usec = now.tv_nsec / 1000;
  return 0;
}
}
