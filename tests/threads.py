"""Replicas of one device, each a thread: exchanges without tf.distribute.

Between graphs the strategies exchange; to trace those takes far longer than a
tiny model does. Steps of every combination of settings run over these.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from infoword_tf.objectives import Replicas


class ThreadReplicas(Replicas):
    """Replica that exchanges with the others, all in the same order."""

    def __init__(self, number: int, meeting: threading.Barrier, slots: list):
        """Initializes a replica with the barrier and slots of all."""
        self.id, self.count = number, meeting.parties
        self._meeting, self._slots = meeting, slots

    def _all(self, x: Any) -> list[Any]:
        """Exchanges values; returns one from every replica."""
        self._slots[self.id] = x
        self._meeting.wait(60)
        brought = list(self._slots)
        self._meeting.wait(60)
        return brought

    def gather(self, x: Any) -> Any:
        """[B, ...] -> [R B, ...]; the gradient is that of the sum of all
        replicas' losses.
        """

        @tf.custom_gradient
        def gathered(x: Any) -> tuple[Any, Callable[[Any], Any]]:
            def gradient(upstream: Any) -> Any:
                every = sum(map(tf.convert_to_tensor, self._all(upstream)))
                return tf.split(every, self.count)[self.id]

            return tf.concat(self._all(x), 0), gradient

        return gathered(tf.convert_to_tensor(x))

    def sum(self, x: Any) -> Any:
        """Sums over replicas, without a gradient."""
        return sum(self._all(tf.stop_gradient(x)))


def run(
    function: Callable[..., Any], of_each: Sequence[Sequence[Any]]
) -> list[Any]:
    """Calls `function(replicas, *arguments)` on each replica; returns results.

    Args:
        function: eager; all exchange the same things in the same order.
        of_each: arguments, by replica.
    """
    meeting = threading.Barrier(len(of_each))
    slots = [None] * len(of_each)

    def one(number: int) -> Any:
        try:
            replicas = ThreadReplicas(number, meeting, slots)
            return function(replicas, *of_each[number])
        except BaseException:
            meeting.abort()
            raise

    with concurrent.futures.ThreadPoolExecutor(len(of_each)) as pool:
        waiting = [pool.submit(one, n) for n in range(len(of_each))]
        errors = [x.exception() for x in waiting]
        for error in errors:
            if error and not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [x.result() for x in waiting]
