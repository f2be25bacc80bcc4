// SPDX-License-Identifier: Apache-2.0
// Fuzzes the pickle reader and the walk over what it read, without a container around them. All storages get the
// same few bytes, so that views reach outside them easily.
#include "parse_fuzz.hpp"
#include "source/pickle_reader.hpp"
#include "source/torch_tensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  const ckpt::source::PickleResult result = ckpt::source::read_pickle(ckpt::as_bytes(bytes));
  if (result.end > size) std::abort();
  if (result.status != ckpt::source::PickleStatus::complete) return 0;
  ckpt::source::UniqueNames names;
  ckpt::source::Parsed parsed;
  ckpt::source::TensorTree tree = find_tensors(result.pickle, {.names = &names}, parsed.tensors);
  if (!tree.refused.empty()) return 0;
  const std::vector<std::optional<ckpt::source::Place>> places(tree.storages.size(), ckpt::source::Place{64, 4096});
  parsed.kind = ckpt::FileKind::torch_zip;
  if (place_tensors(tree, places, parsed)) return 0;
  ckpt::source::settle_extents(parsed.extents);
  const std::string broken = source_test::broken_promise(parsed, 64 + 4096);
  if (broken.empty()) return 0;
  std::fprintf(stderr, "%s\n", broken.c_str());
  std::abort();
}
