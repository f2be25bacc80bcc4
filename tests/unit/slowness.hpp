// SPDX-License-Identifier: Apache-2.0
// Where a sanitizer looks on, everything takes many times as long: loops that go through all of something go through a
// fifth of it there.
#pragma once

namespace unit_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr unsigned slowness = 5;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr unsigned slowness = 5;
#else
inline constexpr unsigned slowness = 1;
#endif
#else
inline constexpr unsigned slowness = 1;
#endif

}  // namespace unit_test
