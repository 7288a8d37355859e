"""How many bytes of tensors a computation holds at once, counted from outside it."""

from __future__ import annotations

import weakref

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Bytes in live tensors that torch operations returned while it was active: ``live`` now, ``peak`` at most.

    A storage counts once, from the operation that returns it first until it is freed. Storages that come from outside,
    such as parameters, do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._track((args, kwargs), ours=False)
        result = function(*args, **kwargs)
        self._track(result, ours=True)
        return result

    def _track(self, tree: object, ours: bool) -> None:
        for tensor in tree_leaves(tree):
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            if id(storage) in self._known:
                continue
            size = storage.nbytes() if ours else 0
            self._known.add(id(storage))
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, id(storage), size).atexit = False

    def _free(self, key: int, size: int) -> None:
        self._known.remove(key)
        self.live -= size
