"""A comparison of an export with the workdir that it was made from.

    python -m export.verify --model=models/books/1 --init=runs/books

Runs a moved copy in a process that imports TensorFlow and tensorflow_text
alone, on real text and on difficult strings, and prints the largest difference
from `infoword_tf.load` for each output. Exit status 1 if one is too large:
above 1e-5 in float32; in bfloat16, where vectors depend on the batch, 0.1 of
an output's largest number. With --speed it also measures, in the same process,
how fast the version answers here, and adds a line to MODEL_CARD.md, so that
versions of several precisions can be compared.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.config import Config, read_exported

TIMED = 200  # texts


@dataclasses.dataclass(frozen=True)
class VerifyChoices:
    """The choices of the command."""

    model: str = flag('', 'The folder of a version: DIR/1.')
    init: str = flag('', 'The workdir it was made from.', model=True)
    texts: int = flag(
        600, 'Number of real texts, in addition to the difficult strings.',
        at_least=1)
    speed: bool = flag(
        False, 'Whether the speed on this processor is measured and written '
        'into MODEL_CARD.md; for true figures let nothing else run.')


@commands.takes(VerifyChoices)
def run(choices: VerifyChoices, chosen: Mapping[str, Any]) -> bool:
    """Runs the command; returns whether all differences are small enough."""
    commands.require(
        vars(choices),
        model='the folder of a version, DIR/1',
        init='the workdir it was made from',
    )
    model, workdir = pathlib.Path(choices.model), pathlib.Path(choices.init)
    config, export = read_exported(model)
    # These import Keras or TensorFlow.
    from infoword_tf.training import record
    from infoword_tf.workdir import completed

    from . import bundle, card, comparison, serving_ops

    # Either may be older than a setting, and an export holds no adapters.
    ours, theirs = (
        completed(x).replace(dims=None, adapter=None)
        for x in (config, Config.read(workdir))
    )
    if ours != theirs:
        raise errors.UsageError(
            'export_of_other_workdir',
            f'--model={model} was not made from --init={workdir}: their '
            'config.json differ; move the export away and make it anew with '
            'python -m export.savedmodel',
        )
    batches = comparison.batches(choices.texts)
    names = [*export['signatures'], 'serving_default']
    print(
        f'{model}: {len(batches["all"]):,} texts, one and none through '
        f'{len(names)} signatures, in a process of its own and then here',
        flush=True,
    )
    import infoword_tf

    with commands.bar(
        total=2 * len(names) * len(batches), unit=' answers'
    ) as bar:
        actual, report = comparison.run_elsewhere(
            model, batches, sys.executable, done=bar.update,
            timed=comparison.paragraphs(TIMED) if choices.speed else (),
        )  # fmt: skip
        loaded = infoword_tf.load(workdir, bundle.POLICIES[export['precision']])
        loaded = bundle.with_dims(loaded, config.dims)
        default = export.get('default', 'embed')  # of older exports
        expected = {
            batch: comparison.in_python(
                loaded, texts, names=names, default=default, done=bar.update
            )
            for batch, texts in batches.items()
        }
    tolerance = comparison.TOLERANCE[export['precision']]
    problems = serving_ops.unservable(model)
    for what, modules in (
        ('imported', {'infoword_tf', 'export'}),
        ('imported_by_the_model', {'keras', 'tf_keras'}),
    ):
        problems += [
            f'{name} was imported'
            for name in sorted(modules.intersection(report[what]))
        ]
    print(
        f'{model} beside {workdir}: {len(batches["all"])} texts, one and none, '
        f'{export["precision"]}, TensorFlow {report["tensorflow"]}; largest '
        'differences'
    )
    close = comparison.show(
        comparison.largest(actual, expected, tolerance), tolerance
    )
    for problem in problems:
        print(f'  {problem}')
    if choices.speed:
        line = card.speed_line(export, report, record.processor_name())
        path = model.absolute().parent / 'MODEL_CARD.md'
        with files.written(path) as partial:
            partial.write_text(card.with_speed(path.read_text(), line))
        print(f'{line} in {path}')
    return close and not problems


if __name__ == '__main__':
    commands.start(run)
