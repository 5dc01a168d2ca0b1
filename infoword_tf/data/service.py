"""Batches that other processes make: each answers for any step.

`python -m infoword_tf.data_service` runs on the other machines, with the
flags of the run. A batch is a function of (seed, step), so any process makes
any step, nobody counts which went where, and nothing is lost or repeated. One
that does not answer is skipped, and tried again later; where none answers the
run makes the batch. (The service of tf.data hands out the next batch that it
has, and runs no Python but that of its own process: tensorflow/community, RFC
195.)

A request is a step, 8 bytes. The answer is a digest of what the flags lead to
(16 bytes), the CRC-32 of the rest, and the arrays as a file of safetensors.
"""

import concurrent.futures
import hashlib
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from infoword_tf import errors, views

SERVICE, METHOD = 'infoword_tf.Batches', 'Make'
STEPS = 1 << 40  # more than any run has
TIMEOUT = 30.0  # seconds to wait for a batch
RETRY = 20.0  # seconds for which a silent process is not asked again
THREADS = 4  # batches that a process makes at a time
_DIGEST, _CRC = 16, 4
_OPTIONS = (
    ('grpc.max_receive_message_length', -1),  # 4 MB otherwise
    ('grpc.max_send_message_length', -1),
    ('grpc.enable_http_proxy', 0),
    ('grpc.max_reconnect_backoff_ms', 5000),
    ('grpc.so_reuseport', 0),  # two at one port would share the requests
)


class ViewMaker(Protocol):
    """Maker of the views of any step, as `data.batches.Batches` is."""

    def views(self, step: int) -> dict[str, views.View]:
        """Returns the views of a step: global batches, NumPy."""


def digest(batches: ViewMaker, *more: Any) -> bytes:
    """Hashes the first batch and choices that need not show in a batch.

    Raises:
        ValueError: the text cannot be read.
    """
    hashed = hashlib.blake2b(repr(more).encode(), digest_size=_DIGEST)
    for name, array in sorted(views.flatten(batches.views(0)).items()):
        hashed.update(f'{name} {array.dtype} {array.shape}'.encode())
        hashed.update(np.ascontiguousarray(array))
    return hashed.digest()


def serve(
    batches: ViewMaker, identity: bytes, address: str
) -> tuple[Any, int]:
    """Answers requests for batches until the server is stopped.

    Args:
        batches: of all steps.
        identity: their `digest`.
        address: HOST:PORT to listen at; port 0 takes a free one.

    Returns:
        gRPC's server, and the port.

    Raises:
        RuntimeError: the port is taken.
    """
    import grpc
    from safetensors.numpy import save

    def make(request: bytes, context: Any) -> bytes:
        step = int.from_bytes(request, 'little')
        if step >= STEPS:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f'{step} is no step'
            )
        try:
            flat = views.flatten(batches.views(step))
        except ValueError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        data = save({k: np.asarray(x, order='C') for k, x in flat.items()})
        return identity + zlib.crc32(data).to_bytes(_CRC, 'little') + data

    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(THREADS), options=_OPTIONS
    )
    handler = grpc.unary_unary_rpc_method_handler(make)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = server.add_insecure_port(address)
    server.start()
    return server, port


class Service:
    """Client of the processes that make batches."""

    def __init__(self, addresses: Sequence[str], identity: bytes):
        """Connects to HOST:PORT of each; `identity` is the run's `digest`."""
        import grpc

        self.addresses, self.identity = list(addresses), identity
        self._error, self._wrong = grpc.RpcError, (
            grpc.StatusCode.FAILED_PRECONDITION
        )
        self._ask = {
            address: grpc.insecure_channel(address, _OPTIONS).unary_unary(
                f'/{SERVICE}/{METHOD}'
            )
            for address in self.addresses
        }
        self._silent: dict[str, float] = {}  # until when
        self._lock = threading.Lock()

    def batch(self, step: int) -> dict[str, np.ndarray] | None:
        """Fetches the flat views of a step; None where no process answers.

        Steps go around the processes, so that each makes as many.

        Raises:
            ValueError: a process makes other batches, or its text is damaged.
        """
        first = step % len(self.addresses)
        for address in self.addresses[first:] + self.addresses[:first]:
            with self._lock:
                if time.monotonic() < self._silent.get(address, 0.0):
                    continue
            arrays = self._fetch(address, step)
            if arrays is not None:
                return arrays
        return None

    def _fetch(self, address: str, step: int) -> dict[str, np.ndarray] | None:
        from safetensors.numpy import load

        try:
            answer = self._ask[address](
                step.to_bytes(8, 'little'), timeout=TIMEOUT
            )
        except self._error as error:
            reason = ' '.join((error.details() or 'no words').split())
            if error.code() == self._wrong:
                raise errors.InputError(
                    'service_refuses',
                    f'--data_service={address}: {reason}',
                ) from None
            self._lost(address, reason)
            return None
        if answer[:_DIGEST] != self.identity:
            raise errors.InputError(
                'service_other_run',
                f'--data_service={address} makes batches of another run; start '
                'it with the flags of this one, on the same text',
            )
        crc, data = answer[_DIGEST : _DIGEST + _CRC], answer[_DIGEST + _CRC :]
        if int.from_bytes(crc, 'little') != zlib.crc32(data):
            self._lost(address, 'its answer was damaged on the way')
            return None
        with self._lock:
            again = self._silent.pop(address, None)
        if again is not None:
            _say(f'--data_service: {address} answers again')
        return load(data)

    def _lost(self, address: str, why: str) -> None:
        with self._lock:
            is_known = address in self._silent
            self._silent[address] = time.monotonic() + RETRY
        if not is_known:
            _say(
                f'--data_service: {address} does not answer ({why}); others '
                'make its batches, or this process'
            )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
