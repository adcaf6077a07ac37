"""Two repairs that the engine's environment needs on a machine without a GPU.

``engine_env`` copies this file into that environment as ``anex_engine_shim``, with a ``.pth`` file that calls
``install`` at every start of an interpreter there, the engine's own child processes included. It must import
quickly: nothing but the standard library at the top.

The repair here is for torchvision: PyPI's build looks up two compiled operators (``nms`` and ``qnms``) when
it is imported, and fails beside a CPU build of torch, which lacks them. Nothing that the engine serves calls
them, so their schemas alone, defined just before torchvision is imported, let the import succeed. The other
repair, an empty distribution ``vllm``, is metadata and is written by ``engine_env``.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# torch forgets a library's operators when the object that defined them is collected.
_kept_alive: list[Any] = []


class _TorchvisionFinder(MetaPathFinder):
    """Finds nothing itself: being asked for torchvision is the moment to define its operators."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Define the operators on the first question about torchvision, then leave the search to others."""
        del path, target
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _define_operators()
        return None


def _define_operators() -> None:
    import torch  # noqa: PLC0415 - takes seconds: only for a process that imports torchvision

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _OPERATORS:
        library.define(schema)
    _kept_alive.append(library)


def install() -> None:
    """Put the finder in front of the import system of this interpreter, once.

    Python 3.11 runs the ``.pth`` files of a virtual environment twice.
    """
    if not any(isinstance(finder, _TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionFinder())
