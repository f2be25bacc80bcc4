// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.hpp"

namespace ckpt::codec {

extern const KernelSet kernels_plain;
#ifdef __x86_64__
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#endif

const KernelSet* kernels_for(InstructionSet set) {
  switch (set) {
    case InstructionSet::plain: return &kernels_plain;
#ifdef __x86_64__
    case InstructionSet::avx2: return __builtin_cpu_supports("avx2") ? &kernels_avx2 : nullptr;
    case InstructionSet::avx512:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi2")
                 ? &kernels_avx512
                 : nullptr;
#else
    case InstructionSet::avx2:
    case InstructionSet::avx512: return nullptr;
#endif
  }
  return nullptr;
}

const KernelSet& kernels() {
  static const KernelSet& best = []() -> const KernelSet& {
    for (const InstructionSet set : {InstructionSet::avx512, InstructionSet::avx2}) {
      if (const KernelSet* found = kernels_for(set)) return *found;
    }
    return kernels_plain;
  }();
  return best;
}

}  // namespace ckpt::codec
