r"""Makes the batches of a run, on another machine than the one that trains.

    python -m infoword_tf.data_service --flagfile=run.flags --listen=[::]:8600
    python -m infoword_tf.train --flagfile=run.flags --workdir=runs/mlm \
        --data_service=cpu1:8600,cpu2:8600

The flags are those of the run; flags that decide no batch do nothing. Nothing
is written. Services may start, stop or be killed at any time, on any number of
machines and ports: see data/service.py. There are neither passwords nor
encryption: listen where strangers do not reach.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import RunChoices, flag
from infoword_tf.data import service
from infoword_tf.training import checks


@dataclasses.dataclass(frozen=True)
class ServiceChoices(RunChoices):
    """The choices of the run, and an address."""

    listen: str = flag(
        '[::]:8600', 'HOST:PORT that is listened at; [::]: all addresses of '
        'this machine, port 0: a free one.')


@commands.takes(ServiceChoices, converts=False)
def run(choices: ServiceChoices, chosen: Mapping[str, Any]) -> None:
    """Serves batches until the process is stopped.

    Raises: as `begin.check_and_run`, and RuntimeError: the port is taken.
    """
    # A process that shares a machine with the one that trains takes no GPU.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    checked = checks.check(choices, chosen, judges=False)
    commands.hush_tensorflow()
    from infoword_tf.training.run import identity_of, open_data

    choices = dataclasses.replace(
        checked.choices, data_service=(), workdir=''
    )
    batches = open_data(
        choices, checked.resolved.plan, texts=checked.texts
    ).batches
    server, port = service.serve(
        batches, identity_of(choices, batches), choices.listen
    )
    host = choices.listen.rpartition(':')[0]
    print(f'making batches at {host}:{port}', flush=True)
    server.wait_for_termination()


if __name__ == '__main__':
    commands.start(run, stopped='it makes no more batches')
