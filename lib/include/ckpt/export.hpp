// SPDX-License-Identifier: Apache-2.0
// CKPT_API marks what libckpt.so exports; everything else is hidden.
#pragma once

#define CKPT_API __attribute__((visibility("default")))
