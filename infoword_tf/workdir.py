"""A workdir in memory, for inference and for runs that start from one.

The encoder has to be complete. Heads and token counts may be missing, which
is an error only where they are needed.
"""

import dataclasses
import functools
import json
import pathlib
import warnings
from collections.abc import Container, Mapping, Sequence
from typing import Any, Self

import numpy as np

from infoword_tf import adapters, checkpoint, errors, files
from infoword_tf.config import FILE, WEIGHTS, Config
from infoword_tf.critics import CRITICS
from infoword_tf.data.opened import digest_of
from infoword_tf.encoders import ENCODERS
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.text.added import ADDED, with_added
from infoword_tf.text.layout import layout_of
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.text.tokenizers import TOKENIZERS


class Workdir:
    """Workdir in memory.

    Attributes:
        model, encoder: model and encoder with trained weights.
        tokenizer: strings to ids.
        config: content of `config.json`.
        unigram: [V] int64, token counts of the training text, or None.
        missing: reasons, by row of the config that is not in the model.
        layout, template: special tokens around texts; the same in ids.
        before, between, after: these ids.
        free_length: tokens of a text that fit between them.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: TextTokenizer,
        config: Config,
        unigram: np.ndarray | None = None,
        missing: Mapping[str, str] | None = None,
        unread: files.Unread | None = None,
    ):
        """Combines the parts of a workdir, with the layout of the config.

        `unread` are weights that `open` leaves in the file.
        """
        self.model, self.encoder = model, model.encoder
        self.tokenizer, self.config = tokenizer, config
        self.unigram, self.missing = unigram, dict(missing or {})
        self.unread = unread
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
        """Reads a trained workdir.

        Args:
            precision: dtype policy, whatever that of training was.
            arguments: arguments of the encoder that decide no weights, in place
                of those of training.

        Raises:
            FileNotFoundError: it is no finished workdir.
            ValueError: weights or vocabulary are truncated, or are not those
                of the config; the encoder has no such arguments; the config
                names what this code does not have.
        """
        opened = cls.open(workdir, precision, arguments, encoded=True)
        files.assign(
            opened.model.variables, opened.weights, f'{workdir}/{WEIGHTS}'
        )
        opened.unread = None
        return opened

    @classmethod
    def open(
        cls,
        workdir: str | pathlib.Path,
        precision: str = 'float32',
        arguments: Mapping[str, Any] | None = None,
        encoded: bool = False,
    ) -> Self:
        """Reads a trained workdir but for weights, which `start` reads.

        Arguments and errors as of `read`, and:

        Args:
            encoded: whether there is room for weights of the encoder; else it
                cannot be called.
        """
        workdir = pathlib.Path(workdir)
        # Missing files are reported before the slow steps.
        Config.read(workdir)
        _existing(workdir / WEIGHTS)
        bare = cls.bare(workdir, precision, arguments, encoded)
        model = bare.model
        _compare_steps(workdir)
        tensors = adapters.open_weights(workdir)
        unigram = tensors.get('unigram')
        missing = {}
        for row, objective in list(model.objectives.items()):
            lacking = [
                w.path for w in objective.weights if w.path not in tensors
            ]
            if lacking:
                missing[row] = f'{WEIGHTS} has no {lacking[0]}'
                model.drop(row)
        others = 'unigram', checkpoint.STEP
        lacking_rows = tuple(f'objectives/{row}/' for row in missing)
        tensors = tensors.where(
            lambda path: (
                path not in others and not path.startswith(lacking_rows)
            )
        )
        return cls(
            model,
            bare.tokenizer,
            bare.config,
            unigram=unigram,
            missing=missing,
            unread=tensors,
        )

    @classmethod
    def bare(
        cls,
        workdir: str | pathlib.Path,
        precision: str = 'float32',
        arguments: Mapping[str, Any] | None = None,
        encoded: bool = True,
    ) -> Self:
        """Reads a workdir, but leaves the weights of the layers as built.

        Arguments and errors as of `open`; no weights.safetensors is needed.
        """
        workdir = pathlib.Path(workdir)
        config = Config.read(workdir)
        _check_names(config, workdir / FILE)
        config = completed(config)
        encoder = config.encoder
        known = ENCODERS[encoder.name].settings
        for name in arguments or {}:
            if name not in known:
                raise errors.InputError(
                    'encoder_lacks_argument',
                    f'the encoder {encoder.name} of {workdir} has no {name}',
                )
        encoder = dataclasses.replace(
            encoder, arguments={**encoder.arguments, **(arguments or {})}
        )
        # Adapters are folded where the weights are read.
        config = config.replace(encoder=encoder, adapter=None)
        tokenizer = read_tokenizer(workdir, config)
        model = Model(
            config.replace(precision=precision),
            tokenizer.specials,
            seed=None,
            auxiliaries=False,
            encoded=encoded,
        )
        return cls(model, tokenizer, config)

    def write(self, folder: str | pathlib.Path) -> None:
        """Writes the workdir into a new folder, config.json last.

        Raises:
            FileExistsError: the folder holds files.
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
        """Copies weights into a fresh model; returns a summary in words."""
        other = _other_heads(self.config, model.config)
        old, new = self.weights, model.inherited
        old = old.where(lambda path: path.split('/')[0] not in other)
        sources = {
            path: _source_path(path, old, self.config) for path in new
        }
        copies = {copy.weight.path for copy in model.copies}
        taken = {path for path in new if sources[path] in old}
        files.assign(
            {path: new[path] for path in new if path in taken},
            files.Unread(
                {
                    path: functools.partial(old.__getitem__, source)
                    for path, source in sources.items()
                    if source in old
                }
            ),
            'the workdir to start from',
        )
        model.assign_copies(taken)

        def layers(paths: Sequence[str]) -> str:
            names = {
                '/'.join(p.split('/')[: 1 + p.startswith('objectives/')])
                for p in paths
            }
            return ', '.join(sorted(names)) or 'nothing'

        return (
            f'taken {layers([p for p in sources.values() if p in old])} and '
            'the tokenizer; '
            f'fresh {layers([p for p in new if p not in taken | copies])}; '
            f'dropped {layers([p for p in old if p not in sources.values()])}'
        )

    @property
    def weights(self) -> files.Unread:
        """Weights of the encoder and of the heads that are left, by path."""
        known = self.model.variables
        if self.unread is None:
            return files.Unread({k: x.numpy for k, x in known.items()})
        return self.unread.where(
            lambda path: path.startswith('encoder/') or path in known
        )

    @property
    def max_length(self) -> int:
        """T of the longest training text, with special tokens."""
        return self.config.max_length

    @property
    def training_pieces(self) -> int | None:
        """Tokens of the training text; None: not recorded."""
        return None if self.unigram is None else int(self.unigram.sum())


def read_tokenizer(folder: pathlib.Path, config: Config) -> TextTokenizer:
    """Reads the tokenizer of a workdir.

    Raises:
        FileNotFoundError: its file is missing.
        ValueError: it is not that of the config, or of an unknown kind.
    """
    _check_names(config, folder / FILE)
    kind = TOKENIZERS[config.tokenizer.kind]
    options = dict(config.tokenizer.options)
    added = options.pop(ADDED, ())
    tokenizer = with_added(
        kind.read(
            _existing(folder / kind.file),
            config.tokenizer.lower_case,
            **options,
        ),
        added,
    )
    if config.vocabulary not in (None, digest_of(tokenizer)):
        raise errors.InputError(
            'workdir_other_vocabulary',
            f'{folder / kind.file} is damaged, or is that of another '
            'model: its tokens are not those of the weights; take it from '
            'a backup, or run the command again that made it',
        )
    return tokenizer


def write_tokenizer(folder: pathlib.Path, tokenizer: TextTokenizer) -> None:
    """Writes the file for `read_tokenizer`, whole or not at all."""
    with files.written(folder / tokenizer.file) as partial:
        tokenizer.write(partial)


def _other_heads(old: Config, new: Config) -> set[str]:
    """Names the heads of critics that a run begins anew, as of other sizes."""
    return {
        name
        for name, critic in CRITICS.items()
        if not critic.fits(critic.of(old), critic.of(new))
    }


def _source_path(
    path: str, old: Mapping[str, Any], config: Config
) -> str:
    """Finds the path of a weight in the workdir that a run starts from.

    `config` is that of the workdir.
    """
    if path in old:
        return path
    name, _, rest = path.partition('/')
    if name in CRITICS:
        firsts = CRITICS[name].begins_as(config)
        others = [_source_path(f'{x}/{rest}', old, config) for x in firsts]
        return next((x for x in others if x in old), path)
    if not path.startswith('objectives/'):
        return path
    first, row, rest = path.split('/', 2)
    head = TABLE[row].begins_as or row
    alike = [head, *(r for r in TABLE if TABLE[r].begins_as == head)]
    sources = ('/'.join([first, other, rest]) for other in alike)
    return next((source for source in sources if source in old), path)


def _check_names(config: Config, path: pathlib.Path) -> None:
    """Raises if a config names an unknown encoder, tokenizer or row."""
    names: list[tuple[str, str, Container[str]]] = [
        ('encoder', config.encoder.name, ENCODERS),
        ('tokenizer', config.tokenizer.kind, TOKENIZERS),
        *(('row', row, TABLE) for row in config.rows),
    ]
    for kind, name, known in names:
        if name not in known:
            raise errors.InputError(
                'workdir_unknown_name',
                f'{path} names the {kind} {name!r}, which this code does not '
                'have; load it with the code that wrote it',
            )


def completed(config: Config) -> Config:
    """Adds the defaults of settings that are newer than a config."""
    rows = {}
    for row, entry in config.rows.items():
        # Settings of the encoder are among its arguments.
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
    """Warns if the weights are of another step than the last checkpoint."""
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
            stacklevel=5,  # the caller of infoword_tf.load
        )


def _existing(path: pathlib.Path) -> pathlib.Path:
    """Returns the path of a workdir's file, or raises."""
    if not path.is_file():
        raise FileNotFoundError(
            f'{path.parent} has no {path.name}: it is not the workdir of a '
            'run of infoword_tf.train that has written a checkpoint'
        )
    return path
