// SPDX-License-Identifier: Apache-2.0
// Saves and loads through the C interface, as another language would make them.
#include <doctest/doctest.h>

#include "scratch.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/restore.hpp>
#include <ckpt/verify.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct CloseSaver {
  void operator()(ckpt_saver* saver) const { (void)ckpt_saver_close(saver, 60); }
};
using SaverPtr = std::unique_ptr<ckpt_saver, CloseSaver>;
struct FreeSave {
  void operator()(ckpt_save* save) const { ckpt_save_free(save); }
};
using SavePtr = std::unique_ptr<ckpt_save, FreeSave>;
struct FreeLoad {
  void operator()(ckpt_load* load) const { ckpt_load_free(load); }
};
using LoadPtr = std::unique_ptr<ckpt_load, FreeLoad>;

#define OK(call)                                                      \
  do {                                                                \
    const int status_ = (call);                                       \
    REQUIRE_MESSAGE(status_ == CKPT_OK, std::string(ckpt_message())); \
  } while (false)

ckpt_saver_options options_for(const std::string& store) {
  ckpt_saver_options options;
  ckpt_saver_defaults(&options);
  options.store = store.c_str();
  return options;
}

SaverPtr open_saver(const ckpt_saver_options& options) {
  ckpt_saver* saver = nullptr;
  OK(ckpt_saver_open(&options, &saver));
  return SaverPtr(saver);
}

SavePtr new_save(const SaverPtr& saver, std::uint64_t step) {
  ckpt_save* save = nullptr;
  OK(ckpt_save_new(saver.get(), step, &save));
  return SavePtr(save);
}

LoadPtr open_load(const std::string& store, const char* selector = nullptr) {
  ckpt_load* load = nullptr;
  OK(ckpt_load_open(store.c_str(), selector, &load));
  return LoadPtr(load);
}

void add_floats(const SavePtr& save, const char* name, const std::vector<float>& values,
                const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& global_shape = {},
                const std::vector<std::int64_t>& offsets = {}) {
  std::uint64_t range = 0;
  OK(ckpt_save_memory(save.get(), values.data(), values.size() * sizeof(float), 0, &range));
  const ckpt_tensor tensor{.struct_size = sizeof(ckpt_tensor),
                           .name = name,
                           .dtype = "float32",
                           .range = range,
                           .offset = 0,
                           .dims = static_cast<std::uint32_t>(shape.size()),
                           .shape = shape.data(),
                           .strides = nullptr,
                           .global_shape = global_shape.empty() ? nullptr : global_shape.data(),
                           .global_offsets = offsets.empty() ? nullptr : offsets.data()};
  OK(ckpt_save_tensor(save.get(), &tensor));
}

std::vector<float> counting(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> whole(const LoadPtr& load, const char* name) {
  ckpt_tensor_info info{.struct_size = sizeof info, .name = nullptr, .dtype = nullptr, .dims = 0, .shape = nullptr};
  OK(ckpt_load_find(load.get(), name, &info));
  std::size_t count = 1;
  for (std::uint32_t d = 0; d < info.dims; ++d) count *= static_cast<std::size_t>(info.shape[d]);
  std::vector<float> values(count);
  const std::vector<std::int64_t> zeros(info.dims);
  OK(ckpt_load_slice(load.get(), name, zeros.data(), info.shape, nullptr, values.data()));
  return values;
}

std::string text_of(const LoadPtr& load, std::uint32_t rank, const char* path) {
  std::uint64_t size = 0;
  OK(ckpt_load_file_size(load.get(), rank, path, &size));
  std::string text(size, '\0');
  OK(ckpt_load_file(load.get(), rank, path, text.data(), size));
  return text;
}

void require_intact(const std::string& store) {
  ckpt::Monitor monitor;
  const auto report =
      ckpt::verify({.what = {.store = store, .selector = {}}, .level = ckpt::VerifyLevel::deep}, monitor);
  CHECK(report.intact());
  CHECK(report.checkpoints > 0);
}

}  // namespace

TEST_SUITE("capi") {
  TEST_CASE("capi: what is overwritten after the moment is stored as it was, on both ways") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    for (const ckpt_capture way : {CKPT_CAPTURE_AUTO, CKPT_CAPTURE_COPY}) {
      ckpt_saver_options options = options_for(store);
      options.capture = way;
      const SaverPtr saver = open_saver(options);
      const std::uint64_t step = way == CKPT_CAPTURE_AUTO ? 1 : 2;
      std::vector<float> large = counting(700'000, static_cast<float>(step));
      std::vector<float> small = counting(7);
      const auto large_before = large;
      const auto small_before = small;
      const SavePtr save = new_save(saver, step);
      add_floats(save, "layer.weight", large, {700, 1000});
      add_floats(save, "layer.bias", small, {7});
      OK(ckpt_save_file(save.get(), "notes/args.json", "{}", 2));
      OK(ckpt_save_meta(save.get(), "loss", "0.5"));
      CHECK(ckpt_save_state(save.get()) == CKPT_STATE_NEW);
      OK(ckpt_save_start(save.get()));
      OK(ckpt_save_freeze(save.get()));
      std::fill(large.begin(), large.end(), -1.0F);
      std::fill(small.begin(), small.end(), -1.0F);
      OK(ckpt_save_wait(save.get(), 60, 1));
      CHECK(ckpt_save_state(save.get()) == CKPT_STATE_DURABLE);
      CHECK(ckpt_save_released(save.get()) == 1);
      ckpt_timings timings{};
      timings.struct_size = sizeof timings;
      OK(ckpt_save_timings(save.get(), &timings));
      CHECK(timings.protected_bytes + timings.copied_bytes == (700'000 + 7) * sizeof(float));
      CHECK(std::strlen(timings.id) == 32);
      const LoadPtr load = open_load(store, std::to_string(step).c_str());
      CHECK(ckpt_load_step(load.get()) == step);
      CHECK(whole(load, "layer.weight") == large_before);
      CHECK(whole(load, "layer.bias") == small_before);
      CHECK(text_of(load, 0, "notes/args.json") == "{}");
    }
    require_intact(store);
  }

  TEST_CASE("capi: checksums in an archive are right, whoever takes its parts") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    ckpt_saver_options options = options_for(store);
    options.jobs = 4;
    options.encode = "raw";
    const SaverPtr saver = open_saver(options);
    const std::vector<float> values = counting(5'000'000);
    const SavePtr save = new_save(saver, 1);
    std::array<std::uint64_t, 2> ranges{};
    OK(ckpt_save_memory(save.get(), values.data(), 4 * values.size(), 0, ranges.data()));
    OK(ckpt_save_memory(save.get(), values.data(), 4'999'999, 0, &ranges[1]));
    OK(ckpt_save_freeze(save.get()));
    OK(ckpt_save_archive(save.get(), "a.pt", "a"));
    OK(ckpt_save_record(save.get(), "data.pkl", "\x80\x02}.", 4));
    OK(ckpt_save_record_of(save.get(), "data/0", ranges[0], 4 * values.size()));
    OK(ckpt_save_record_of(save.get(), "data/1", ranges[1], 4'999'000));
    OK(ckpt_save_record(save.get(), "version", "3\n", 2));
    OK(ckpt_save_start(save.get()));
    OK(ckpt_save_wait(save.get(), 60, 1));
    const std::string archive = scratch / "a.pt";
    {
      const std::string bytes = text_of(open_load(scratch / "st"), 0, "a.pt");
      std::ofstream(archive, std::ios::binary) << bytes;
    }
    const std::string test = "python3 -m zipfile -t '" + archive + "' >/dev/null";
    CHECK(std::system(test.c_str()) == 0);
  }

  TEST_CASE("capi: parts of ranks are read as wholes, and replicas where they are") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    const std::vector<float> all = counting(60);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ckpt_saver_options options = options_for(store);
      options.rank = rank;
      options.world_size = 3;
      const SaverPtr saver = open_saver(options);
      const std::vector<float> part(all.begin() + 20 * rank, all.begin() + 20 * (rank + 1));
      const SavePtr save = new_save(saver, 7);
      add_floats(save, "w", part, {4, 5}, {12, 5}, {4 * rank, 0});
      OK(ckpt_save_start(save.get()));
      OK(ckpt_save_freeze(save.get()));
      OK(ckpt_save_wait(save.get(), 60, 0));
      if (rank < 2) CHECK(ckpt_save_wait(save.get(), 0.05, 1) == CKPT_TIMED_OUT);
      if (rank == 2) CHECK(ckpt_save_state(save.get()) == CKPT_STATE_DURABLE);
    }
    const LoadPtr load = open_load(store);
    CHECK(ckpt_load_world_size(load.get()) == 3);
    CHECK(whole(load, "w") == all);
    const std::array<std::int64_t, 2> offsets{3, 1};
    const std::array<std::int64_t, 2> shape{6, 2};
    const std::array<std::int64_t, 2> strides{1, 6};
    std::vector<float> box(12);
    OK(ckpt_load_slice(load.get(), "w", offsets.data(), shape.data(), strides.data(), box.data()));
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t column = 0; column < 2; ++column)
        CHECK(box[row + 6 * column] == all[(row + 3) * 5 + column + 1]);
    }
  }

  TEST_CASE("capi: saves go on at a time, in the order of their starts") {
    const unit_test::Scratch scratch;
    const SaverPtr saver = open_saver(options_for(scratch / "st"));
    std::vector<float> values = counting(500'000);
    std::vector<SavePtr> saves;
    std::vector<std::vector<float>> before;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      saves.push_back(new_save(saver, step));
      add_floats(saves.back(), "w", values, {500'000});
      OK(ckpt_save_start(saves.back().get()));
      OK(ckpt_save_freeze(saves.back().get()));
      before.push_back(values);
      for (float& value : values) value = value * 1.25F + 1;
    }
    for (const SavePtr& save : saves) OK(ckpt_save_wait(save.get(), 60, 1));
    CHECK(ckpt_saver_pending(saver.get()) == 0);
    for (std::uint64_t step = 1; step <= 5; ++step)
      CHECK(whole(open_load(scratch / "st", std::to_string(step).c_str()), "w") == before[step - 1]);
    require_intact(scratch / "st");
  }

  TEST_CASE("capi: a state larger than the memory set aside is copied in waves") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    ckpt_saver_options options = options_for(store);
    options.capture = CKPT_CAPTURE_COPY;
    options.memory = 8U << 20U;
    const SaverPtr saver = open_saver(options);
    std::vector<float> values = counting(8'000'000);
    const auto before = values;
    const SavePtr save = new_save(saver, 1);
    add_floats(save, "w", values, {8'000'000});
    OK(ckpt_save_start(save.get()));
    OK(ckpt_save_freeze(save.get()));
    std::fill(values.begin(), values.end(), 0.0F);
    OK(ckpt_save_wait(save.get(), 60, 1));
    ckpt_timings timings{};
    timings.struct_size = sizeof timings;
    OK(ckpt_save_timings(save.get(), &timings));
    CHECK(timings.waves > 1);
    CHECK(timings.peak_aside_bytes <= options.memory);
    CHECK(whole(open_load(scratch / "st"), "w") == before);
  }

  TEST_CASE("capi: a failure is told once, by wait or by close") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    ckpt_saver* saver = nullptr;
    const ckpt_saver_options options = options_for(store);
    OK(ckpt_saver_open(&options, &saver));
    std::vector<float> values = counting(10);
    const auto save_step = [&](std::uint64_t step) {
      ckpt_save* save = nullptr;
      OK(ckpt_save_new(saver, step, &save));
      SavePtr owned(save);
      add_floats(owned, "w", values, {10});
      OK(ckpt_save_start(save));
      OK(ckpt_save_freeze(save));
      return owned;
    };
    OK(ckpt_save_wait(save_step(1).get(), 60, 1));
    values[0] = 5;
    const SavePtr again = save_step(1);
    CHECK(ckpt_save_wait(again.get(), 60, 1) == CKPT_EXISTS);
    CHECK(std::string(ckpt_message()).find("other content") != std::string::npos);
    CHECK(ckpt_save_state(again.get()) == CKPT_STATE_FAILED);
    values[0] = 6;
    (void)save_step(1);
    CHECK(ckpt_saver_close(saver, 60) == CKPT_EXISTS);
  }

  TEST_CASE("capi: wrong calls are refused, and say why") {
    const unit_test::Scratch scratch;
    ckpt_saver* none = nullptr;
    const std::string store = scratch / "st";
    ckpt_saver_options options = options_for(store);
    options.rank = 1;
    CHECK(ckpt_saver_open(&options, &none) == CKPT_INVALID);
    CHECK(std::string(ckpt_message()).find("rank 1") != std::string::npos);
    CHECK(ckpt_saver_open(nullptr, &none) == CKPT_INVALID);
    const SaverPtr saver = open_saver(options_for(scratch / "st"));
    const SavePtr save = new_save(saver, 1);
    const std::vector<float> values = counting(10);
    std::uint64_t range = 0;
    OK(ckpt_save_memory(save.get(), values.data(), 40, 0, &range));
    const std::array<std::int64_t, 1> shape{11};
    ckpt_tensor tensor{.struct_size = sizeof(ckpt_tensor),
                       .name = "w",
                       .dtype = "float32",
                       .range = range,
                       .offset = 0,
                       .dims = 1,
                       .shape = shape.data(),
                       .strides = nullptr,
                       .global_shape = nullptr,
                       .global_offsets = nullptr};
    CHECK(ckpt_save_tensor(save.get(), &tensor) == CKPT_INVALID);  // past the range
    tensor.dtype = "float33";
    CHECK(ckpt_save_tensor(save.get(), &tensor) == CKPT_INVALID);
    CHECK(ckpt_save_record(save.get(), "a", "b", 1) == CKPT_INVALID);  // no archive
    CHECK(ckpt_save_file(save.get(), "../out", "b", 1) == CKPT_INVALID);
    OK(ckpt_save_archive(save.get(), "a.pt", "a"));
    OK(ckpt_save_record_of(save.get(), "data/0", range, 40));
    CHECK(ckpt_save_record_of(save.get(), "data/1", range, 40) == CKPT_INVALID);  // twice
    OK(ckpt_save_freeze(save.get()));
    CHECK(ckpt_save_freeze(save.get()) == CKPT_INVALID);
    CHECK(ckpt_save_memory(save.get(), values.data(), 40, 0, &range) == CKPT_INVALID);
    ckpt_load* load = nullptr;
    CHECK(ckpt_load_open((scratch / "none").c_str(), nullptr, &load) == CKPT_NOT_FOUND);
    CHECK(ckpt_load_open((scratch / "st").c_str(), "yesterday", &load) == CKPT_INVALID);
  }

  TEST_CASE("capi: a fork's child can use nothing of its parent's") {
    const unit_test::Scratch scratch;
    const SaverPtr saver = open_saver(options_for(scratch / "st"));
    SavePtr save = new_save(saver, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ckpt_save* another = nullptr;
      const bool refused = ckpt_save_new(saver.get(), 2, &another) == CKPT_INVALID &&
                           ckpt_save_start(save.get()) == CKPT_INVALID &&
                           ckpt_saver_close(saver.get(), 1) == CKPT_INVALID && ckpt_saver_pending(saver.get()) == 0;
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }

  TEST_CASE("capi: many saves leave threads and descriptors as they were") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "st";
    ckpt_saver_options options = options_for(store);
    options.encode = "raw";
    const SaverPtr saver = open_saver(options);
    std::vector<float> values = counting(100);
    const auto count = [](const char* directory) {
      return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
    };
    const auto save_step = [&](std::uint64_t step) {
      const SavePtr save = new_save(saver, step);
      add_floats(save, "w", values, {100});
      OK(ckpt_save_start(save.get()));
      OK(ckpt_save_freeze(save.get()));
      OK(ckpt_save_wait(save.get(), 60, 1));
      const std::string digits = std::to_string(step);
      std::filesystem::remove_all(scratch / ("st/" + std::string(10 - digits.size(), '0') + digits));
    };
    save_step(0);
    const auto threads = count("/proc/self/task");
    const auto descriptors = count("/proc/self/fd");
    for (std::uint64_t step = 1; step <= 50; ++step) save_step(step);
    CHECK(count("/proc/self/task") == threads);
    CHECK(count("/proc/self/fd") == descriptors);
  }
}
