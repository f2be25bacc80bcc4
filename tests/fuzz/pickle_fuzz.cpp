// SPDX-License-Identifier: Apache-2.0
// Fuzzes the pickle reader and the walk over what it read, without a container around them. All storages get the
// same few bytes, so that views reach outside them easily. What is read is also compared with itself, which must find
// nothing.
#include "ops/pickle_view.hpp"
#include "parse_fuzz.hpp"
#include "source/pickle_reader.hpp"
#include "source/torch_tensors.hpp"

namespace {

void compare_with_itself(const ckpt::source::Pickle& pickle) {
  const ckpt::ops::PickleView view(pickle);
  const auto found = [](ckpt::Change, const std::string& path, const std::string& a, const std::string& b) {
    std::fprintf(stderr, "'%s' differs from itself: '%s', '%s'\n", path.c_str(), a.c_str(), b.c_str());
    std::abort();
  };
  try {
    ckpt::ops::ValueWalk<ckpt::ops::PickleView>(view, view, {}, found).run(pickle.root(), pickle.root());
  } catch (const ckpt::Error& error) {
    if (error.code() != ckpt::Errc::unsupported) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  const ckpt::source::PickleResult result = ckpt::source::read_pickle(ckpt::as_bytes(bytes));
  if (result.end > size) std::abort();
  if (result.status != ckpt::source::PickleStatus::complete) return 0;
  compare_with_itself(result.pickle);
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
