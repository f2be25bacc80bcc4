// SPDX-License-Identifier: Apache-2.0
// Where first-touching memory is dear, as in many virtual machines, most of the time that a file of a hundred thousand
// tensors takes is page faults. Huge pages make them five hundred times fewer.
#pragma once

namespace ckpt::cli {

/// Lets the allocator take its memory from a range that the kernel may back with huge pages. Called once, before
/// anything large is allocated. What is never touched costs nothing.
void prefer_huge_pages();

}  // namespace ckpt::cli
