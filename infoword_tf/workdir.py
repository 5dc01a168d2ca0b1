"""A workdir in memory: what a run starts from, and inference builds on.

The encoder has to be complete. Heads and piece counts may be missing; that is
reported when they are needed.
"""

import dataclasses
import json
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from infoword_tf import checkpoint, files
from infoword_tf.config import FILE, WEIGHTS, Config
from infoword_tf.data.opened import digest_of
from infoword_tf.encoders import ENCODERS
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.text.added import ADDED, with_added
from infoword_tf.text.layout import layout_of
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizer import Tokenizer
from infoword_tf.text.tokenizers import TOKENIZERS


class Workdir:
    """A workdir in memory.

    Attributes:
        model: the encoder with its rows.
        encoder: with its trained weights.
        tokenizer: strings to ids.
        config: what `config.json` holds.
        unigram: [V] int64, how often each piece was in the training text;
            None where the workdir does not say it.
        missing: by row of the config that is not in the model, why.
        layout: what stands around a text.
        template: what lays texts out so.
        before, between, after: ids of what stands around them.
        free_length: pieces of a text that fit between them.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        config: Config,
        unigram: np.ndarray | None = None,
        missing: Mapping[str, str] | None = None,
    ):
        """Args: as the attributes; the layout is the config's."""
        self.model, self.encoder = model, model.encoder
        self.tokenizer, self.config = tokenizer, config
        self.unigram, self.missing = unigram, dict(missing or {})
        self.layout = layout_of(config.layout)
        self.template = template = Template(tokenizer, self.layout)
        self.before, self.between = template.before, template.between
        self.after = template.after
        self.free_length = template.free_length(self.max_length)

    @classmethod
    def read(
        cls,
        workdir: str | pathlib.Path,
        precision: str = 'float32',
        arguments: Mapping[str, Any] | None = None,
    ) -> Self:
        """Loads a trained workdir.

        Args:
            precision: what it computes in, whatever it was trained in.
            arguments: of the encoder, instead of those that it was trained
                with: of those that decide no weights.

        Raises: FileNotFoundError: it is no finished workdir. ValueError: its
        weights or vocabulary are cut, or are not those of its config; its
        encoder has no such arguments; it names what this code does not have.
        """
        workdir = pathlib.Path(workdir)
        Config.read(workdir)  # what it lacks is said first
        _there(workdir / WEIGHTS)  # before the work
        bare = cls.bare(workdir, precision, arguments)
        model = bare.model
        _compare_steps(workdir)
        tensors = files.read_tensors(workdir / WEIGHTS)
        unigram = tensors.pop('unigram', None)
        tensors.pop(checkpoint.STEP, None)
        missing = {}
        for row, objective in list(model.objectives.items()):
            lacking = [
                w.path for w in objective.weights if w.path not in tensors
            ]
            if lacking:
                missing[row] = f'{WEIGHTS} has no {lacking[0]}'
                model.drop(row)
        lacking_rows = tuple(f'objectives/{row}/' for row in missing)
        tensors = {
            k: v for k, v in tensors.items() if not k.startswith(lacking_rows)
        }
        files.assign(model.variables, tensors, str(workdir / WEIGHTS))
        return cls(model, bare.tokenizer, bare.config, unigram, missing)

    @classmethod
    def bare(
        cls,
        workdir: str | pathlib.Path,
        precision: str = 'float32',
        arguments: Mapping[str, Any] | None = None,
    ) -> Self:
        """As `read`, but all weights are as the layers have them at first, and
        their file need not be there.
        """
        workdir = pathlib.Path(workdir)
        config = Config.read(workdir)
        _check_names(config, workdir / FILE)
        config = _completed(config)
        encoder = config.encoder
        taken = ENCODERS[encoder.name].settings
        for name in arguments or {}:
            if name not in taken:
                raise ValueError(
                    f'the encoder {encoder.name} of {workdir} has no {name}'
                )
        encoder = dataclasses.replace(
            encoder, arguments={**encoder.arguments, **(arguments or {})}
        )
        config = config.replace(encoder=encoder)
        tokenizer = read_tokenizer(workdir, config)
        model = Model(
            config.replace(precision=precision),
            tokenizer.specials,
            seed=None,
            companions=False,
        )
        return cls(model, tokenizer, config)

    def write(self, folder: str | pathlib.Path) -> None:
        """Makes a workdir of this one, config.json last.

        Raises:
            FileExistsError: files are there.
        """
        folder = pathlib.Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(
                f'{folder} is there and holds files; name a new folder'
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_tokenizer(folder, self.tokenizer)
        tensors = dict(self.model.exported)
        if self.unigram is not None:
            tensors['unigram'] = self.unigram
        files.write_tensors(folder / WEIGHTS, tensors)
        self.config.write(folder)

    def start(self, model: Model) -> str:
        """Copies what a fresh model of the same encoder can take from this one.

        Returns:
            What was taken, what is fresh and what was dropped, for people.
        """
        old, new = self.model.variables, model.exported
        as_there = {path: _as_there(path, old) for path in new}
        copies = {copy.weight.path for copy in model.copies}
        taken = {path for path in new if as_there[path] in old}
        files.assign(
            {path: new[path] for path in new if path in taken},
            {
                path: old[theirs].numpy()
                for path, theirs in as_there.items()
                if theirs in old
            },
            'the workdir to start from',
        )
        model.begin_copies(taken)

        def parts(paths: Sequence[str]) -> str:
            names = {
                '/'.join(p.split('/')[: 1 + p.startswith('objectives/')])
                for p in paths
            }
            return ', '.join(sorted(names)) or 'nothing'

        return (
            f'taken {parts([p for p in as_there.values() if p in old])} and '
            'the tokenizer; '
            f'fresh {parts([p for p in new if p not in taken | copies])}; '
            f'dropped {parts([p for p in old if p not in as_there.values()])}'
        )

    @property
    def max_length(self) -> int:
        """T: the longest that it was trained on, with specials."""
        return self.config.max_length

    @property
    def training_pieces(self) -> int | None:
        """How long the training text was; None: the workdir does not say."""
        return None if self.unigram is None else int(self.unigram.sum())


def read_tokenizer(folder: pathlib.Path, config: Config) -> Tokenizer:
    """The tokenizer of a workdir of this config.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is not that of the config, or nobody knows its kind.
    """
    _check_names(config, folder / FILE)
    kind = TOKENIZERS[config.tokenizer.kind]
    options = dict(config.tokenizer.options)
    added = options.pop(ADDED, ())
    tokenizer = with_added(
        kind.read(
            _there(folder / kind.file), config.tokenizer.lower_case, **options
        ),
        added,
    )
    if config.vocabulary not in (None, digest_of(tokenizer)):
        raise ValueError(
            f'{folder / kind.file} is damaged, or is that of another '
            'model: its pieces are not those of the weights; take it from '
            'a backup, or run the command again that made it'
        )
    return tokenizer


def write_tokenizer(folder: pathlib.Path, tokenizer: Tokenizer) -> None:
    """Writes what `read_tokenizer` reads, whole or not at all."""
    with files.written(folder / tokenizer.file) as partial:
        tokenizer.write(partial)


def _as_there(path: str, old: Mapping[str, Any]) -> str:
    """The path of a weight in the workdir that a run starts from."""
    if path in old or not path.startswith('objectives/'):
        return path
    first, row, rest = path.split('/', 2)
    head = TABLE[row].begins_as or row
    alike = [head, *(r for r in TABLE if TABLE[r].begins_as == head)]
    theirs = ('/'.join([first, other, rest]) for other in alike)
    return next((other for other in theirs if other in old), path)


def _check_names(config: Config, path: pathlib.Path) -> None:
    """Complains of a config that other code wrote."""
    for what, name, known in (
        ('encoder', config.encoder.name, ENCODERS),
        ('tokenizer', config.tokenizer.kind, TOKENIZERS),
        *(('row', row, TABLE) for row in config.rows),
    ):
        if name not in known:
            raise ValueError(
                f'{path} names the {what} {name!r}, which this code does not '
                'have; load it with the code that wrote it'
            )


def _completed(config: Config) -> Config:
    """The same, with the defaults of settings that are newer than it."""
    rows = {}
    for row, entry in config.rows.items():
        # Those of the encoder are among its arguments.
        defaults = {
            name: setting.default
            for name, setting in TABLE[row].settings.items()
            if not setting.encoder
        }
        rows[row] = dataclasses.replace(
            entry, settings={**defaults, **entry.settings}
        )
    return config.replace(rows=rows)


def _compare_steps(workdir: pathlib.Path) -> None:
    """Says when weights are of no step that metrics or checkpoints end with."""
    weights, last = (
        checkpoint.weights_step(workdir), checkpoint.last_step(workdir)
    )  # fmt: skip
    metrics = workdir / 'metrics.json'
    if metrics.is_file():
        last = json.loads(metrics.read_text()).get('step', last)
    if None not in (weights, last) and weights != last:
        warnings.warn(
            f'{workdir}/{WEIGHTS} is of step {weights}, its last checkpoint '
            f'of step {last}: the run was stopped between the two, or is just '
            'writing. Its command, run again, writes them anew',
            stacklevel=4,  # of who calls infoword_tf.load
        )


def _there(path: pathlib.Path) -> pathlib.Path:
    """The path of a file of a workdir, if it is there."""
    if not path.is_file():
        raise FileNotFoundError(
            f'{path.parent} has no {path.name}: it is not the workdir of a '
            'run of infoword_tf.train that has written a checkpoint'
        )
    return path
