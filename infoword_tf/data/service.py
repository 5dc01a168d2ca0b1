"""Batches that other processes make: any of them answers for any step.

What runs on the other machines is `python -m infoword_tf.data_service`, with
the flags of the run. A batch is a function of (seed, step), so nobody keeps
count of what was given to whom: whoever is asked for a step makes it, the same
as all others and the run itself would. One that does not answer is passed over,
and asked again later; where none answers the run makes the batch. So nothing is
lost or repeated, whichever of them is killed. (The service of tf.data hands out
the next batch that it has, and runs no Python but that of its own process:
tensorflow/community, RFC 195.)

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
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import views

if TYPE_CHECKING:
    from infoword_tf.data.batches import Batches

SERVICE, METHOD = 'infoword_tf.Batches', 'Make'
STEPS = 1 << 40  # more than any run has
TIMEOUT = 30.0  # seconds in which a batch is there
RETRY = 20.0  # seconds for which one that has not answered is passed over
THREADS = 4  # batches that a process makes at a time
_DIGEST, _CRC = 16, 4
_OPTIONS = (
    ('grpc.max_receive_message_length', -1),  # 4 MB otherwise
    ('grpc.max_send_message_length', -1),
    ('grpc.enable_http_proxy', 0),
    ('grpc.max_reconnect_backoff_ms', 5000),
    ('grpc.so_reuseport', 0),  # two at one port would share what is asked
)


def digest(batches: 'Batches', *more: Any) -> bytes:
    """Differs where batches do: hashes the first one.

    Args:
        batches: of a run.
        more: choices that need not show in it: whose turn steps are.

    Raises:
        ValueError: the text cannot be read.
    """
    found = hashlib.blake2b(repr(more).encode(), digest_size=_DIGEST)
    for name, array in sorted(views.flatten(batches.views(0)).items()):
        found.update(f'{name} {array.dtype} {array.shape}'.encode())
        found.update(np.ascontiguousarray(array))
    return found.digest()


def serve(batches: 'Batches', identity: bytes, address: str) -> tuple[Any, int]:
    """Makes batches for whoever asks, until the server is stopped.

    Args:
        batches: of all steps.
        identity: their `digest`.
        address: HOST:PORT that is listened at; port 0: a free one.

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
    """Asks for batches; what does not answer is told on standard error."""

    def __init__(self, addresses: Sequence[str], identity: bytes):
        """Args: HOST:PORT of each; `digest` of the batches of this run."""
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
        """The flat views of a step; None: nobody answers.

        Steps go around, so that all have as many to make.

        Raises:
            ValueError: one makes other batches, or complains of the text.
        """
        first = step % len(self.addresses)
        for address in self.addresses[first:] + self.addresses[:first]:
            with self._lock:
                if time.monotonic() < self._silent.get(address, 0.0):
                    continue
            found = self._asked(address, step)
            if found is not None:
                return found
        return None

    def _asked(self, address: str, step: int) -> dict[str, np.ndarray] | None:
        from safetensors.numpy import load

        try:
            answer = self._ask[address](
                step.to_bytes(8, 'little'), timeout=TIMEOUT
            )
        except self._error as error:
            said = ' '.join((error.details() or 'no words').split())
            if error.code() == self._wrong:
                raise ValueError(
                    f'--data_service={address}: {said}'
                ) from None
            self._lost(address, said)
            return None
        if answer[:_DIGEST] != self.identity:
            raise ValueError(
                f'--data_service={address} makes batches of another run; start '
                'it with the flags of this one, on the same text'
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
            known = address in self._silent
            self._silent[address] = time.monotonic() + RETRY
        if not known:
            _say(
                f'--data_service: {address} does not answer ({why}); others '
                'make its batches, or this process'
            )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
