r"""Makes the batches of a run, on another machine than the one that trains.

    python -m infoword_tf.data_service --flagfile=run.flags --listen=[::]:8600
    python -m infoword_tf.train --flagfile=run.flags --workdir=runs/mlm \
        --data_service=cpu1:8600,cpu2:8600

It takes the flags of the run, of which those that decide no batch do nothing,
and writes nothing. It may be started, stopped or killed at any time, before the
run or after, on as many machines and ports as there are: see data/service.py.
There are neither passwords nor encryption: listen where strangers do not reach.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import RunChoices, flag
from infoword_tf.data import service
from infoword_tf.training import begin


@dataclasses.dataclass(frozen=True)
class Choices(RunChoices):
    """Those of the run, and where this is."""

    listen: str = flag(
        '[::]:8600', 'HOST:PORT that is listened at; [::]: all that this '
        'machine has, port 0: a free one.')


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """The command; it ends when it is stopped.

    Raises: as `begin.begin`, and RuntimeError: the port is taken.
    """
    given, resolved = begin.checked(given, chosen)
    # A process that shares a machine with the one that trains takes no GPU.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    commands.hush_tensorflow()
    from infoword_tf.training.run import Run

    one = Run(
        dataclasses.replace(given, data_service=(), workdir=''), resolved.plan
    )
    one.open_text()
    server, port = service.serve(
        one.batches, one.identity(), given.listen
    )
    host = given.listen.rpartition(':')[0]
    print(f'making batches at {host}:{port}', flush=True)
    server.wait_for_termination()


if __name__ == '__main__':
    commands.start(run, stopped='it makes no more batches')
