// SPDX-License-Identifier: Apache-2.0
// A trainer whose whole state is one number, at every place of its memory: overwrites all of it, with several threads,
// right after each save's moment. usage: trainer STORE BYTES auto|copy RANK WORLD_SIZE FIRST_STEP
#include <ckpt/ckpt.h>

#include <sys/mman.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

void require(int status) {
  if (status == CKPT_OK) return;
  std::fprintf(stderr, "trainer: %s\n", ckpt_message());
  std::exit(2);
}

void train(std::uint32_t* state, std::size_t count, std::uint32_t step) {
  std::vector<std::thread> threads;
  const std::size_t half = count / 2;
  threads.emplace_back([=] { std::fill(state, state + half, step); });
  threads.emplace_back([=] { std::fill(state + half, state + count, step); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10);
  const std::size_t count = bytes / sizeof(std::uint32_t);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto* const state = static_cast<std::uint32_t*>(memory);

  ckpt_saver_options options;
  ckpt_saver_defaults(&options);
  options.store = argv[1];
  options.capture = std::string(argv[3]) == "copy" ? CKPT_CAPTURE_COPY : CKPT_CAPTURE_AUTO;
  options.rank = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  options.world_size = static_cast<std::uint32_t>(std::strtoul(argv[5], nullptr, 10));
  ckpt_saver* saver = nullptr;
  require(ckpt_saver_open(&options, &saver));
  const std::string name = "state." + std::string(argv[4]);
  const std::int64_t shape = static_cast<std::int64_t>(count);
  std::vector<ckpt_save*> saves;
  for (std::uint64_t step = std::strtoull(argv[6], nullptr, 10);; ++step) {
    train(state, count, static_cast<std::uint32_t>(step));
    ckpt_save* save = nullptr;
    ckpt_tensor tensor{.struct_size = sizeof(ckpt_tensor),
                       .name = name.c_str(),
                       .dtype = "int32",
                       .range = 0,
                       .offset = 0,
                       .dims = 1,
                       .shape = &shape,
                       .strides = nullptr,
                       .global_shape = nullptr,
                       .global_offsets = nullptr};
    require(ckpt_save_new(saver, step, &save));
    require(ckpt_save_memory(save, state, bytes, 0, &tensor.range));
    require(ckpt_save_tensor(save, &tensor));
    require(ckpt_save_start(save));
    require(ckpt_save_freeze(save));
    saves.push_back(save);
    if (saves.size() < 3) continue;
    require(ckpt_save_wait(saves.front(), 120, 0));
    ckpt_save_free(saves.front());
    saves.erase(saves.begin());
  }
}
