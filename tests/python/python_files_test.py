# SPDX-License-Identifier: Apache-2.0
# What Saver stores is the file that torch.save writes, record by record, and it's the state of the call.
import os
import threading
import warnings

import torch_support as support
from torch_support import check, check_same_file, ckpt, restored, same, torch

from tap import main

warnings.simplefilter("ignore")


def files_test(name, make):
    def test():
        torch.manual_seed(1)
        state = make()
        os.mkdir("reference")
        torch.save(state, "reference/state.pt")
        with ckpt.Saver("store") as saver:
            handle = saver.save(state, 3)
            handle.wait(60)
            check(handle.state == "durable", handle.state)
            # Some versions of Python go deeper.
            check("at_once" not in handle.timings or name == "too deep", handle.timings.get("at_once"))
            torch.save(state, "reference/again.pt")  # saving left the state as it was
        check_same_file(restored("store", 3), "reference/state.pt")
        check_same_file("reference/again.pt", "reference/state.pt")
    return test


def test_aliases_and_identities_are_kept():
    state = support.states()["views"]()[1:]
    shared = ["x"]
    whole = {"tensors": state, "one": shared, "two": shared}
    whole["self"] = whole
    with ckpt.Saver("store") as saver:
        saver.save(whole, 1)
    loaded = ckpt.load("store", weights_only=False)
    check(loaded["self"] is loaded and loaded["one"] is loaded["two"], "identities are lost")
    first = loaded["tensors"][0]
    first.fill_(5)
    check(all((tensor == 5).all() for tensor in loaded["tensors"]), "aliases are lost")
    check(loaded["tensors"][5] is first, "the same tensor became two")


def test_what_is_written_right_after_the_call_is_not_stored():
    tensors = [torch.zeros(257 + 1000 * n) for n in range(8)] + [torch.zeros(1 << 20)]
    extra = {"list": [0], "dict": {"a": 0}, "array": support.numpy.zeros(4), "object": support.Counter()}
    with ckpt.Saver("store", encode="raw") as saver:
        for step in range(1, 201):
            for tensor in tensors:
                tensor.fill_(step)
            extra["list"][:] = [step]
            extra["dict"] = {"a": step}
            extra["array"][0] = step
            extra["object"].count[0] = step
            extra["object"].weight.fill_(step)
            handle = saver.save({"tensors": list(tensors), "extra": extra}, step)

            def overwrite(some):
                for tensor in some:
                    tensor.fill_(-1)
            threads = [threading.Thread(target=overwrite, args=(tensors[n::3],)) for n in range(3)]
            for thread in threads:
                thread.start()
            extra["list"][0] = extra["dict"]["a"] = extra["array"][0] = extra["object"].count[0] = -1
            extra["object"].weight.fill_(-1)
            extra["list"].append("more")
            extra["dict"]["more"] = 1
            for thread in threads:
                thread.join()
            if step % 20 == 0:
                handle.wait(60)
        saver.wait(120)
        for step in range(1, 201, 7):
            loaded = ckpt.load("store", step, weights_only=False)
            for tensor in loaded["tensors"]:
                check((tensor == step).all(), f"step {step} is torn")
            more = loaded["extra"]
            check(more["list"] == [step] and more["dict"]["a"] == more["array"][0] == step, f"{step}: {more}")
            check(more["object"].count[0] == step and (more["object"].weight == step).all(), "an object is torn")


def test_a_tensor_that_is_resized_or_replaced_after_the_call_is_stored_as_it_was():
    one, two, three = torch.ones(100), torch.ones(100), torch.nn.Parameter(torch.ones(10, 10))
    with ckpt.Saver("store") as saver:
        handle = saver.save([one, two, three], 1)
        one.resize_(3)
        two.set_(torch.zeros(5))
        three.data = torch.zeros(7)
        handle.wait(60)
    loaded = ckpt.load("store")
    check([tuple(t.shape) for t in loaded] == [(100,), (100,), (10, 10)], [t.shape for t in loaded])
    check(all((t == 1).all() for t in loaded), "the values are later ones")


def test_a_resumed_training_is_the_same_to_the_bit():
    model, optimizer = support.trained(0)
    losses = []
    with ckpt.Saver("store") as saver:
        for step in range(1, 21):
            losses.append(support.step_of(model, optimizer))
            if step % 5 == 0:
                saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "rng": torch.get_rng_state(), "step": step}, step)
    state = ckpt.load("store", 10, weights_only=False)  # 1.13 takes no floats otherwise
    torch.manual_seed(99)
    other, its = support.trained(0)
    other.load_state_dict(state["model"])
    its.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    again = [support.step_of(other, its) for _ in range(10)]
    check(again == losses[10:], f"{again} {losses[10:]}")
    check(same(other.state_dict(), model.state_dict()), "the weights differ")
    check(same(its.state_dict(), optimizer.state_dict()), "the optimizer's state differs")


def test_a_state_is_loaded_in_place_by_name():
    model, optimizer = support.trained()
    whole = {"model": model.state_dict(), "wide": torch.arange(12).view(3, 4), "half": torch.ones(3)}
    with ckpt.Saver("store") as saver:
        saver.save(whole, 1)
    target = {"model": support.Model().state_dict(), "wide": torch.zeros(4, 3, dtype=torch.int64).t(),
              "half": torch.zeros(3, dtype=torch.float64)}
    missing, more = ckpt.load_into(target, "store")
    check(not missing and not more, (missing, more))
    check(same(target["model"], whole["model"]) and (target["wide"] == whole["wide"]).all(), "values differ")
    check((target["half"] == 1).all(), "no conversion")
    target["new"] = torch.zeros(2)
    try:
        ckpt.load_into(target, "store")
        check(False, "a missing tensor is no error")
    except ckpt.NotFound as failure:
        check("new" in str(failure), failure)
    del target["half"]
    missing, more = ckpt.load_into(target, "store", strict=False)
    check(missing == ["new"] and more == ["half"], (missing, more))


def test_replicated_tensors_are_written_once_and_found_by_all():
    state = {"weights": {f"w{n}": torch.full((50,), float(n)) for n in range(20)}, "mine": torch.zeros(1)}
    state["parameter"] = torch.nn.Parameter(torch.ones(3))
    savers = [ckpt.Saver("store", rank, 3) for rank in range(3)]
    for rank, saver in enumerate(savers):
        saver.save(dict(state, mine=torch.tensor([float(rank)])), 4, replicated=["weights.*", "parameter"])
    for saver in savers:
        saver.close()
    held = []
    for rank in range(3):
        with ckpt.Checkpoint("store", 4) as checkpoint:
            raw = torch.load(ckpt.loading._File(checkpoint.read(rank=rank)))
        held += [name for name, t in raw["weights"].items() if t.device.type == "cpu"]
        loaded = ckpt.load("store", 4, rank=rank)
        check(same(loaded, dict(state, mine=torch.tensor([float(rank)]))), f"rank {rank} got others")
    check(sorted(held) == sorted(state["weights"]), held)


if __name__ == "__main__":
    tests = [(f"the file of {name} is torch.save's", files_test(name, make)) for name, make in support.states().items()]
    main(tests + [(name[5:].replace("_", " "), value) for name, value in list(globals().items())
                  if name.startswith("test_")])
