"""Commands that fine-tune, small."""

import contextlib
import functools
import json
import pathlib
from pydoc_data import topics
from unittest import mock

from infoword_tf.evaluation import measures
from tasks import finetune
from tests import places, quick
from tests.export import workdirs
from tests.tasks import command

# A dozen updates a second, each of them seen.
SMALL = ('--learning_rate=0.003', '--batch_size=8', '--seq_len=24',
         '--precision=float32', '--log_every=1', '--epochs=2')  # fmt: skip
KINDS = {'class': 'assignment', 'text': 'strings', 'loop': 'specialattrs'}
XNLI = 'language\tgold_label\tparse\tsentence1\tsentence2\tmatch\n' + ''.join(
    f'{language}\t{label}\t(ROOT\t{a}\t{b}\tTrue\n'
    for language, label, a, b in (
        ('fr', 'neutral', 'Il fait froid.', "L'hiver est là."),
        ('de', 'neutral', 'Es ist "kalt.', 'Es ist Winter.'),
        ('fr', 'contradiction', 'Elle dort.', 'Elle court.'),
        ('de', 'contradiction', 'Sie schläft.', 'Sie rennt.'),
    )
)


def run(module, *arguments, pictures=False):
    """As whoever types it meets it; later flags win."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(quick.small(pictures=pictures))
        if not pictures:
            stack.enter_context(mock.patch.object(measures, 'draw_confusion'))
        return command.run(module, *SMALL, *arguments)


def runner(module, folder, *flags):
    """Returns a function that runs a command with flags and further ones.

    Its workdir is named, and lies in a folder.
    """
    def run_it(name, *more, run=run, **ways):
        return run(module, *flags, f'--workdir={folder / name}', *more, **ways)

    return run_it


def prepared(module, *arguments):
    """Returns what a command would train; it ends there."""
    with (
        mock.patch.object(finetune, 'train_once') as train,
        mock.patch.object(finetune, 'train_and_write') as train_and_write,
        mock.patch.object(finetune, 'finish'),
    ):
        train.return_value = {'step': 1}
        command.succeeded(run(module, *arguments))
    if train_and_write.called:
        return train_and_write.call_args.args[1]
    return train.call_args.args[0]


@places.once
def init():
    """A pretrained workdir: random weights, and a real vocabulary."""
    return workdirs.write(
        workdirs.folder() / 'pretrained', rows=('mlm',), pooling='cls'
    )


def tuned(folder, labels, rows=('label',), settings=(), fields=(), **more):
    """Writes a fine-tuned workdir of four layers, with random weights."""
    classes = {'label.classes': len(labels)} if 'label' in rows else {}
    return workdirs.write(
        folder, rows, settings=classes | dict(settings),
        fields={'labels': tuple(labels), **dict(fields)},
        **{'pooling': 'cls', 'layers': 4, **more},
    )  # fmt: skip


@functools.cache
def sentences():
    """Real ones, of three kinds: (text, kind), one of each in turn."""
    actual = []
    for kind, topic in KINDS.items():
        words = topics.topics[topic].split()
        actual.append([
            (' '.join(words[i : i + 9]).replace('"', "'"), kind)
            for i in range(0, 9 * 40, 9)
        ])  # fmt: skip
    return [one for three in zip(*actual, strict=False) for one in three]


def write(path, names, rows):
    lines = ['\t'.join(map(str, row)) for row in (names, *rows)]
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return path


def last_line(done):
    """Returns the last line of a command that succeeded."""
    return json.loads(command.succeeded(done).out.splitlines()[-1])
