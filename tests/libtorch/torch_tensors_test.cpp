// SPDX-License-Identifier: Apache-2.0
// Tensors of all kinds saved and loaded; what is written to them meanwhile isn't stored; ranks; failures.
#include "torch_support.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

using namespace torch_test;

namespace {

at::Tensor numbers(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return at::arange(count, at::TensorOptions().dtype(at::kDouble)).sub(count / 2).to(type).reshape(shape);
}

/// A part of a matrix cut by rows, of which rank r of n has its share.
struct Part {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};
Part part_of(std::int64_t rows, std::uint32_t rank, std::uint32_t world) {
  const std::int64_t chunk = (rows + world - 1) / world;
  const std::int64_t begin = std::min<std::int64_t>(rank * chunk, rows);
  return {begin, std::min(chunk, rows - begin)};
}

}  // namespace

TEST_CASE("tensors of every type and form come back to the bit") {
  const unit_test::Scratch scratch;
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat,
                                    at::kDouble, at::kBool, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    all.emplace_back(std::string("type.") + c10::toString(type), numbers({3, 5}, type));
  }
  const at::Tensor base = at::randn({40, 30});
  all.emplace_back("base", base);
  all.emplace_back("transposed", base.t());
  all.emplace_back("stepped", base.slice(0, 1, 40, 3).slice(1, 2, 30, 2));
  all.emplace_back("expanded", at::randn({1, 7}).expand({4, 7}));
  all.emplace_back("channels_last", at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  all.emplace_back("scalar", at::scalar_tensor(3.25));
  all.emplace_back("empty", at::empty({0, 4}));
  all.emplace_back("conjugate", numbers({4}, at::kComplexFloat).mul(c10::complex<double>(1, 2)).conj());
  all.emplace_back("nan", at::full({9}, std::nan("")));
  all.emplace_back("large", at::randn({3, 1 << 20}));
  State state;
  for (const auto& [name, tensor] : all) state.add(name, tensor);
  save_one(scratch / "a", 7, state);

  const Loader loader(scratch / "a");
  CHECK(loader.step() == 7);
  CHECK(loader.names().size() == all.size());
  for (const auto& [name, tensor] : all) {
    CAPTURE(name);
    CHECK(same(loader.load(name), tensor.resolve_conj()));
    CHECK(loader.shape(name) == tensor.sizes().vec());
    CHECK((loader.dtype(name) == tensor.scalar_type()));
  }
}

TEST_CASE("what shares a storage is stored once") {
  const unit_test::Scratch scratch;
  const at::Tensor base = at::randn({1 << 20});
  State state;
  for (int i = 0; i < 8; ++i) state.add("view." + std::to_string(i), base.slice(0, i, 1 << 19));
  Saver saver(options_for(scratch / "a"));
  const SaveHandle handle = saver.save(1, state);
  handle.wait();
  CHECK(handle.timings().raw_bytes < base.nbytes() + 65536);
  CHECK(same(Loader(scratch / "a").load("view.3"), base.slice(0, 3, 1 << 19)));
}

TEST_CASE("what is written to tensors after the call isn't stored") {
  const unit_test::Scratch scratch;
  std::vector<at::Tensor> tensors;
  State state;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(at::full({1 << 20}, i));
    state.add("tensor." + std::to_string(i), tensors.back());
  }
  for (const ckpt_capture capture : {CKPT_CAPTURE_AUTO, CKPT_CAPTURE_COPY}) {
    for (int i = 0; i < 6; ++i) tensors[static_cast<std::size_t>(i)].fill_(i);
    SaverOptions options = options_for(scratch / (capture == CKPT_CAPTURE_COPY ? "copy" : "auto"));
    options.capture = capture;
    Saver saver(options);
    std::atomic<bool> is_over = false;
    const SaveHandle handle = saver.save(1, state);
    std::vector<std::thread> writers;
    for (const at::Tensor& tensor : tensors) {
      writers.emplace_back([&is_over, to = static_cast<float*>(tensor.data_ptr())] {
        for (int round = 0; !is_over; ++round) {
          std::fill(to, to + (1 << 20), static_cast<float>(-round - 1));
          std::this_thread::sleep_for(std::chrono::milliseconds(5));  // whoever writes the save wants a core, too
        }
      });
    }
    handle.wait();
    is_over = true;
    for (std::thread& writer : writers) writer.join();
    const Loader loader(options.store);
    for (int i = 0; i < 6; ++i) CHECK(same(loader.load("tensor." + std::to_string(i)), at::full({1 << 20}, i)));
  }
}

TEST_CASE("tensors are kept alive until they have been read") {
  const unit_test::Scratch scratch;
  Saver saver(options_for(scratch / "a"));
  {
    State state;
    state.add("gone", at::full({1 << 22}, 4.5));
    (void)saver.save(1, state);
  }
  saver.close();
  CHECK(same(Loader(scratch / "a").load("gone"), at::full({1 << 22}, 4.5)));
}

TEST_CASE("patterns choose tensors, an exact name first") {
  const unit_test::Scratch scratch;
  State state;
  state.add("model.a", numbers({2})).add("model.b", numbers({3})).add("model.*", numbers({4})).add("x", numbers({5}));
  save_one(scratch / "a", 1, state);
  const Loader loader(scratch / "a");
  CHECK(loader.load_matching("model.[ab]").size() == 2);
  CHECK(loader.load_matching("model.*").size() == 1);
  CHECK(loader.load_matching("*").size() == 4);
  CHECK(loader.has("x"));
  CHECK(!loader.has("y"));
  CHECK(failure_of([&] { (void)loader.load_matching("y*"); }).code() == CKPT_NOT_FOUND);
  CHECK(failure_of([&] { (void)loader.load("y"); }).code() == CKPT_NOT_FOUND);
  CHECK(failure_of([&] { (void)Loader(scratch / "a", "2"); }).code() == CKPT_NOT_FOUND);
}

TEST_CASE("loading in place keeps addresses and strides, and converts") {
  const unit_test::Scratch scratch;
  const at::Tensor saved = at::randn({64, 48});
  State state;
  state.add("w", saved);
  save_one(scratch / "a", 1, state);
  const Loader loader(scratch / "a");

  at::Tensor into = at::zeros({48, 64}).t();
  const void* const address = into.data_ptr();
  loader.load_into("w", into);
  CHECK(into.data_ptr() == address);
  CHECK(into.strides().vec() == std::vector<std::int64_t>{1, 64});
  CHECK(same(into, saved));

  at::Tensor doubles = at::zeros({64, 48}, at::TensorOptions().dtype(at::kDouble)).requires_grad_(true);
  loader.load_into("w", doubles);
  CHECK(same(doubles, saved.to(at::kDouble)));

  at::Tensor box = at::zeros({10, 5});
  loader.load_into("w", box, {3, 40});
  CHECK(same(box, saved.slice(0, 3, 13).slice(1, 40, 45)));
  CHECK(same(loader.load("w", {60, 0}, {4, 48}), saved.slice(0, 60, 64)));

  CHECK(failure_of([&] { loader.load_into("w", at::zeros({48, 64})); }).code() == CKPT_INVALID);
  CHECK(failure_of([&] { (void)loader.load("w", {60, 0}, {5, 48}); }).code() == CKPT_INVALID);
}

TEST_CASE("a state is filled as a whole or, if it's strict, not at all") {
  const unit_test::Scratch scratch;
  std::int64_t step = 41;
  double loss = 0.1;
  State state;
  state.add("w", numbers({8})).add("step", step).add("loss", loss).add_file("config.json", "{}");
  save_one(scratch / "a", 41, state);
  const Loader loader(scratch / "a");
  CHECK(loader.file("config.json") == "{}");
  CHECK(failure_of([&] { (void)loader.file("other"); }).code() == CKPT_NOT_FOUND);

  step = 0;
  loss = 0;
  State more;
  more.add("w", at::zeros({8})).add("step", step).add("other", at::zeros({1}));
  const Error failure = failure_of([&] { loader.load_into(more); });
  CHECK(failure.code() == CKPT_NOT_FOUND);
  CHECK(mentions(failure, "other"));
  CHECK(step == 0);
  CHECK(loader.load_into(more, false) == std::vector<std::string>{"other"});
  CHECK(step == 41);
  loader.load_into(state);
  CHECK(loss == 0.1);
}

TEST_CASE("raw tensors are mapped, others read, and both may be written to") {
  const unit_test::Scratch scratch;
  const at::Tensor large = at::randn({5, 1 << 20});
  const at::Tensor small = at::randn({100});
  State state;
  state.add("large", large).add("small", small).add("view", large.t());
  for (const char* encode : {"raw", "fast"}) {
    CAPTURE(encode);
    SaverOptions options = options_for(scratch / encode);
    options.encode = encode;
    Saver saver(options);
    saver.save(1, state).wait();
    at::Tensor mapped;
    {
      const Loader loader(options.store);
      bool is_mapped = false;
      mapped = loader.map("large", &is_mapped);
      if (std::string(encode) == "raw") CHECK(is_mapped);
      CHECK(same(loader.map("small"), small));
      CHECK(same(loader.map("view", &is_mapped), large.t()));
      CHECK(!is_mapped);
    }
    CHECK(same(mapped, large));
    mapped.fill_(1);
    CHECK(same(Loader(options.store).map("large"), large));
  }
  // A flipped bit is told of.
  const std::filesystem::path file = scratch / "raw/0000000001/shard-00000-of-00001.ckpt";
  std::filesystem::permissions(file, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(10 << 20);
  const int byte = stream.get();
  stream.seekp(10 << 20);
  stream.put(static_cast<char>(byte ^ 4));
  stream.close();
  CHECK(failure_of([&] { (void)Loader(scratch / "raw").map("large"); }).code() == CKPT_DAMAGED);
}

TEST_CASE("what four ranks save is loaded by three, and by one") {
  const unit_test::Scratch scratch;
  const at::Tensor whole = at::randn({37, 11});
  const at::Tensor same_everywhere = at::randn({1000});
  std::int64_t step = 5;
  std::vector<std::unique_ptr<Saver>> savers;
  std::vector<SaveHandle> handles;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    SaverOptions options = options_for(scratch / "a");
    options.rank = rank;
    options.world_size = 4;
    options.replicated = {"replicated.*"};
    savers.push_back(std::make_unique<Saver>(options));
    const Part part = part_of(37, rank, 4);
    State state;
    state.add_sharded("w", whole.slice(0, part.begin, part.begin + part.rows), whole.sizes(), {part.begin, 0});
    state.add("each", same_everywhere).add("step", step);
    for (int i = 0; i < 8; ++i) state.add("replicated." + std::to_string(i), same_everywhere.slice(0, 0, 10).clone());
    state.add("rank." + std::to_string(rank), at::full({1}, static_cast<double>(rank)));
    handles.push_back(savers.back()->save(5, state));
  }
  for (const SaveHandle& handle : handles) handle.wait(60);
  for (const SaveHandle& handle : handles) CHECK(handle.state() == CKPT_STATE_DURABLE);

  const Loader loader(scratch / "a");
  CHECK(loader.world_size() == 4);
  CHECK(same(loader.load("w"), whole));
  CHECK(same(loader.load("each"), same_everywhere));
  CHECK(loader.load_matching("replicated.*").size() == 8);
  CHECK(loader.load("rank.3").item<float>() == 3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const Part part = part_of(37, rank, 3);
    const at::Tensor local = at::zeros({part.rows, 11});
    step = 0;
    State state;
    state.add_sharded("w", local, whole.sizes(), {part.begin, 0}).add("step", step);
    loader.load_into(state);
    CHECK(same(local, whole.slice(0, part.begin, part.begin + part.rows)));
    CHECK(step == 5);
  }
}

TEST_CASE("what can't be saved is refused, by its name") {
  const unit_test::Scratch scratch;
  Saver saver(options_for(scratch / "a"));
  const auto refusal = [&](const at::Tensor& tensor) {
    State state;
    state.add("odd.one", tensor);
    const Error failure = failure_of([&] { (void)saver.save(1, state); });
    CHECK(mentions(failure, "'odd.one'"));
    return failure.code();
  };
  CHECK(refusal({}) == CKPT_INVALID);
  CHECK(refusal(at::eye(3).to_sparse()) == CKPT_UNSUPPORTED);
  CHECK(refusal(at::quantize_per_tensor(at::randn({4}), 0.1, 0, at::kQInt8)) == CKPT_UNSUPPORTED);
  CHECK(refusal(at::empty({4}, at::TensorOptions().device(at::kMeta))) == CKPT_UNSUPPORTED);
  State twice;
  twice.add("a", at::ones({1})).add("a", at::ones({1}));
  CHECK(failure_of([&] { (void)saver.save(1, twice); }).code() == CKPT_INVALID);
  State outside;
  CHECK(failure_of([&] { outside.add_sharded("b", at::ones({3}), {4}, {2}); }).code() == CKPT_INVALID);
  // Nothing of it counts against the saver.
  State good;
  good.add("a", at::ones({1}));
  saver.save(2, good).wait();
  saver.close();
}

TEST_CASE("a save that failed is told of once, by whatever is asked first") {
  const unit_test::Scratch scratch;
  State state;
  state.add("a", at::randn({1 << 16}));
  const auto break_store = [&](const std::string& store) {
    std::filesystem::remove_all(store);
    std::ofstream(store) << "no directory";
  };
  for (const char* way : {"save", "wait", "close", "handle"}) {
    CAPTURE(way);
    const std::string store = scratch / way;
    Saver saver(options_for(store));
    saver.save(1, state).wait();
    break_store(store);
    const SaveHandle handle = saver.save(2, state);
    while (!handle.done()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(handle.state() == CKPT_STATE_FAILED);
    const Error failure = failure_of([&] {
      if (std::string(way) == "save") (void)saver.save(3, state);
      if (std::string(way) == "wait") saver.wait();
      if (std::string(way) == "close") saver.close();
      if (std::string(way) == "handle") handle.wait();
    });
    CHECK(failure.code() != CKPT_OK);
    CHECK(std::string(failure.what()) != "");
    CHECK(failure_of([&] { saver.close(); }).code() == CKPT_OK);
    CHECK(failure_of([&] { (void)saver.save(4, state); }).code() == CKPT_INVALID);
  }
}

TEST_CASE("a wait has an end, and what it waited for goes on") {
  const unit_test::Scratch scratch;
  SaverOptions options = options_for(scratch / "a");
  options.world_size = 2;
  Saver saver(options);
  State state;
  state.add("a", at::randn({16}));
  const SaveHandle handle = saver.save(1, state);
  saver.wait();
  CHECK(handle.state() == CKPT_STATE_WRITTEN);
  CHECK(handle.done());
  CHECK(failure_of([&] { handle.wait(0.05); }).code() == CKPT_TIMED_OUT);
  CHECK(saver.pending() == 0);
  saver.close();
  CHECK(handle.step() == 1);
}
