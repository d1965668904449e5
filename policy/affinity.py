"""Whether a session goes on with the node it had."""

from typing import NamedTuple

import numpy as np

from policy import filters
from policy.types import Bools
from policy.view import View


class Stay(NamedTuple):
    """The session's own node, or why it was released; neither without a session."""

    node: int | None = None
    released: str | None = None


def pinned(view: View, left: Bools) -> Stay:
    """*left*: the nodes that may answer, [n].

    A retry goes where its first try went; otherwise a client's hint and a conversation that turned to another
    pool's intent outweigh the session.
    """
    binding = view.features.binding
    if binding is None:
        return Stay()
    where = view.fleet.by_address.get(binding.node)
    if where is None or view.fleet.nodes[where].key != binding.identity:
        return Stay(released="its node is gone")
    if view.fleet.full.item(where):
        return Stay(released="its node is over the watermark")
    if not left.item(where):
        return Stay(released="its node is not eligible for this request")
    if not view.retry:
        for hint in view.request.hints:
            wished = filters.hinted(view, hint)
            if not wished[where] and np.count_nonzero(filters.first(view, left) & wished):
                return Stay(released=f"hint {hint.key}={hint.value}")
        if view.intent is not None and view.fleet.nodes[where].pool != view.pool and view.pool in view.fleet.pools:
            return Stay(released=f"the conversation turned to {view.intent}")
    return Stay(node=where)
