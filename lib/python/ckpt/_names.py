# SPDX-License-Identifier: Apache-2.0
# Tensors by their dotted names, as `ckpt-ls --tensors` shows them: keys and indices joined by dots, a name that is
# taken gets "#2", a container is walked where it's first met.
import torch


def _key(key):
    text = key if isinstance(key, str) else str(key)
    return text or '""'


def places_of(state):
    """(name, tensor, container, key) of each; the container is None for the state itself."""
    taken = {}
    walked = set()
    keep = []
    # Depth first in pickle's order, without recursion.
    stack = [(None, state, None, None)]
    while stack:
        path, what, container, key = stack.pop()
        if isinstance(what, torch.Tensor):
            name = path if path is not None else "(root)"
            count = taken.get(name, 0) + 1
            while count > 1 and f"{name}#{count}" in taken:
                count += 1
            taken[name] = count
            if count > 1:
                name = f"{name}#{count}"
                taken[name] = 1
            yield name, what, container, key
            continue
        if isinstance(what, dict):
            items = list(what.items())
        elif isinstance(what, (list, tuple)):
            items = list(enumerate(what))
        else:
            continue
        if id(what) in walked:
            continue
        walked.add(id(what))
        keep.append(what)
        front = "" if path is None else path + "."
        stack.extend((front + _key(k), value, what, k) for k, value in reversed(items)
                     if isinstance(value, (torch.Tensor, dict, list, tuple)))


def tensors_of(state):
    return {name: tensor for name, tensor, _, _ in places_of(state)}
