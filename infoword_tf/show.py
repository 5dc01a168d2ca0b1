r"""Draws what a row reads: its views, and who may look at whom in them.

    python -m infoword_tf.show --objectives=plm \
        "The quick brown fox jumps over the lazy dog near the river."
    python -m infoword_tf.show --objectives=infoword --output=infoword.png \
        "One sentence." "And another one."
    python -m infoword_tf.show --objectives=tlm \
        "A dog." "Ein Hund." "A cat sleeps." "Eine Katze schläft."

A panel is a view: a row of its squares is a token that looks, a column what it
may look at. Of rows that read translations each two sentences are a pair.
Without --init or --vocab the words of the sentences are the pieces.
"""

import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands, pictures, resolve
from infoword_tf.choices import ModelChoices, TextChoices, again, flag
from infoword_tf.config import Config
from infoword_tf.encoders import ENCODERS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import TABLE
from infoword_tf.settings import Setting
from infoword_tf.views import VIEWS

BATCH = 8  # texts of a step, so that each has others; one is drawn


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    objectives: str | None = flag(
        None, 'A named sum, or rows, as of infoword_tf.train; by default those '
        'of --init.')
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    output: str = flag('show.png', 'The PNG file to write.')
    seq_len: int | None = flag(
        None, 'Sequence length in tokens, special tokens included; by default '
        'what the sentences need.', at_least=8)
    seed: int = flag(
        0, 'Random seed of masks, orders and negatives.', at_least=0)
    masking: str | None = again(ModelChoices, 'masking', None)
    mask_share: float | None = again(ModelChoices, 'mask_share', None)
    memory_length: int | None = flag(
        None, 'Tokens of memory, for encoders that have one; a quarter of '
        '--seq_len by default.', at_least=0)
    init: str | None = flag(
        None, 'A workdir, whose tokenizer is used.', model=True)
    vocab: str | None = flag(
        None, 'A vocab.txt, a SentencePiece *.model, a tokenizer.json of '
        'byte pairs or a words.txt.')
    lower_case: bool | None = again(TextChoices, 'lower_case', None)

    @staticmethod
    def settings_of(row: str) -> dict[str, Setting]:
        """Of the views, and of which are read: nothing else is drawn."""
        entry = TABLE[row]
        defaults = {k: known.default for k, known in entry.settings.items()}
        read = {
            name: {
                tuple(entry.reads({**defaults, name: value}))
                for value in known.choices or (False, True)
            }
            for name, known in entry.settings.items()
        }
        return {
            name: known
            for name, known in entry.settings.items()
            if name not in entry.objective.settings or len(read[name]) > 1
        }


def sentences_of(texts: Sequence[str]) -> list[str]:
    """The sentences of some texts; a lone one is cut in two, since rows may
    put a sentence beside another.

    Raises:
        UsageError: there are no two words.
    """
    from infoword_tf.data.documents import split_sentences

    texts = [' '.join(text.split()) for text in texts]
    sentences = [s for text in texts for s in split_sentences(text) if s]
    if len(sentences) == 1:
        words = sentences[0].split()
        middle = (len(words) + 1) // 2
        sentences = [' '.join(words[:middle]), ' '.join(words[middle:])]
    if not all(sentences or ['']):
        raise UsageError(
            'give a sentence of two words or more: python -m infoword_tf.show '
            '--objectives=mlm "a sentence"'
        )
    return sentences


def choose(given: Choices, length: int) -> resolve.Resolved:
    """What --objectives, or else --init, wants of a text of T tokens.

    Raises:
        UsageError: neither is named, or what is asked for cannot be.
    """
    objectives, settings = given.objectives, given.settings
    masking, share, encoder = given.masking, given.mask_share, None
    if objectives is None:
        if not given.init:
            raise UsageError(
                '--objectives is missing: name a row or a sum, such as '
                f'{", ".join(TABLE)}'
            )
        config = Config.read(pathlib.Path(given.init))
        objectives, encoder = ','.join(config.rows), config.encoder.name
        masking = masking or config.masking
        share = share or config.mask_share
        of_run = {
            f'{row}.{name}': value
            for row, entry in config.rows.items()
            for name, value in entry.settings.items()
            if name in Choices.settings_of(row)
        }
        settings = {**of_run, **settings}
    return resolve.resolve(
        ModelChoices(
            objectives=objectives,
            settings=settings,
            masking=masking,
            mask_share=share,
            encoder=encoder,
            positions=max(512, length),
            seq_len=length,
            memory_length=given.memory_length or None,
        )
    )


def shortest(rows: Sequence[str], pieces: int) -> int:
    """T that holds so many pieces, and that the views can be made of."""
    sources = {VIEWS[view].source for row in rows for view in TABLE[row].views}
    if 'translations' in sources:  # two sides, each with room for any sentence
        return max(8, 2 * pieces + 3)
    if 'streams' in sources:  # two halves of one size
        return max(24, pieces + 3 + (pieces + 3) % 2)
    return max(8, pieces + 2)


def views_of(
    sentences: Sequence[str], tokenizer: Any, plan: Any, length: int, seed: int,
    steps: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """The views of some steps, made as in a run, of copies of the sentences."""
    from infoword_tf.data import store as stores
    from infoword_tf.data.batches import Batches, open_sources
    from infoword_tf.data.documents import Document
    from infoword_tf.data.text_pairs import Columns
    from infoword_tf.data.translations import ParallelText, tokenized

    where = 'the command line'
    pieces = len(tokenizer.pieces([s.encode() for s in sentences]).ids)
    copies = 8 + 2 * BATCH * (steps + 1) * length // (pieces + 1)
    pairs = zip(sentences[::2], sentences[1::2], strict=False)
    sides = [list(side) * 2 * BATCH for side in zip(*pairs, strict=True)]
    pairs = tokenized(Columns(where, sides, 0), tokenizer, length)
    with tempfile.TemporaryDirectory() as folder:
        store = stores.write_store(
            pathlib.Path(folder) / 'text',
            [Document(tuple(sentences), where)] * copies,
            tokenizer,
            progress=False,
        )
        sources = open_sources(
            store, plan, BATCH, seed, translations=ParallelText({'': pairs})
        )
        for spec, source in sources.items():
            if spec.source == 'windows':  # each from the beginning of the text
                source.starts = lambda step: np.zeros(BATCH, np.int64)
        batches = Batches(sources, plan, tokenizer.specials, seed)
        return [batches.views(step) for step in range(steps)]


@commands.takes(Choices)
def run(
    texts: Sequence[str], given: Choices, chosen: Mapping[str, Any]
) -> None:
    """Draws what is asked for, and prints the path of the PNG.

    Raises:
        UsageError, ValueError: as the message says.
    """
    if given.init and given.vocab:
        raise UsageError('--init brings its vocabulary; leave out --vocab')
    resolved = choose(given, given.seq_len or 512)
    if resolved.plan.labelled:
        raise UsageError(
            'these rows read labelled examples as they are: there is no view '
            'of a text to draw'
        )
    sentences = sentences_of(texts)
    if given.init:
        from infoword_tf.workdir import read_tokenizer

        folder = pathlib.Path(given.init)
        tokenizer = read_tokenizer(folder, Config.read(folder))
    elif given.vocab:
        from infoword_tf.data.opened import open_tokenizer

        of_file = TextChoices(vocab=given.vocab, lower_case=given.lower_case)
        tokenizer = open_tokenizer(of_file, {}, pathlib.Path())
    else:
        from infoword_tf.text.wholewords import WholeWords

        words = (re.findall(r'\w+|[^\w\s]', text) for text in sentences)
        sentences = list(map(' '.join, words))
        tokenizer = WholeWords.learn(
            sentences, lower_case=bool(given.lower_case)
        )
    pieces = tokenizer.pieces([text.encode() for text in sentences]).ids
    length = given.seq_len or shortest(resolved.rows, len(pieces))
    # No word of so short a text is left out as too frequent.
    whole = {
        f'{row}.subsample': 0.0
        for row, entry in resolved.rows.items()
        if 'subsample' in entry.settings
    }
    settings = {**whole, **given.settings}
    resolved = choose(dataclasses.replace(given, settings=settings), length)
    plan, encoder = resolved.plan, resolved.encoder
    memory = given.memory_length
    if memory is None:
        memory = 0 if resolved.memory_length is None else length // 4
    advance = min(
        dict(spec.arguments).get('advance', length)
        for spec in plan.source_specs
    )
    steps = 1 + -(-memory // advance)  # until the memory is full
    *before, last = views_of(
        sentences, tokenizer, plan, length, given.seed, steps
    )
    # Of encoders that are told so it is an argument, with a default.
    causal = ENCODERS[encoder.name].causal
    causal = encoder.arguments.get('causal', getattr(causal, 'default', causal))
    made = []
    for name, view in last.items():
        read = plan.views[name].rows.items()
        past = [pictures.first(views[name].ids)[:advance] for views in before]
        made.append(
            pictures.picture(
                name,
                view,
                {row: reads.where for row, reads in read},
                tokenizer.vocabulary,
                tokenizer.specials,
                causal,
                np.concatenate(past)[-memory:] if memory else (),
            )
        )
    rows = [
        f'{row}.  a: {TABLE[row].a}.  b: {TABLE[row].b}: '
        f'{TABLE[row].relation}.  Candidates: {TABLE[row].candidates}.'
        for row in resolved.rows
    ]
    pictures.draw(pathlib.Path(given.output), rows, made)
    print(given.output)


if __name__ == '__main__':
    commands.start(run, 'the sentences', commands.NOTHING)
