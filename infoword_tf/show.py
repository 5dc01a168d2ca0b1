r"""Draws the views of a row, and which tokens attend to which.

    python -m infoword_tf.show --objectives=plm \
        "The quick brown fox jumps over the lazy dog near the river."
    python -m infoword_tf.show --objectives=infoword --output=infoword.png \
        "One sentence." "And another one."
    python -m infoword_tf.show --objectives=tlm \
        "A dog." "Ein Hund." "A cat sleeps." "Eine Katze schläft."

A panel is a view: a line of its squares is a token that looks, a column what
it may look at. Of rows that read translations each two sentences are a pair.
Without --init or --vocab the words of the sentences are the tokens.
"""

import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands, pictures, resolve
from infoword_tf.choices import ModelChoices, TextChoices, again, flag
from infoword_tf.config import Config
from infoword_tf.encoders import ENCODERS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import TABLE, flag_of, setting_flags
from infoword_tf.settings import Setting
from infoword_tf.views import VIEWS

BATCH = 8  # texts of a step, so that each has others; one is drawn


@dataclasses.dataclass(frozen=True)
class ShowChoices:
    """Choices of the command."""

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
    def setting_flags() -> dict[str, tuple[Setting, list[str]]]:
        """Returns the settings of views, and settings that choose views."""
        return {
            flag: (known, rows)
            for flag, (known, rows) in setting_flags().items()
            if _shows(rows[0], flag.partition('.')[2], known)
        }


def _shows(row: str, name: str, known: Setting) -> bool:
    """Tells whether a setting of a row is a view's, or chooses views."""
    entry = TABLE[row]
    defaults = {k: known.default for k, known in entry.settings.items()}
    read = {
        tuple(entry.reads({**defaults, name: value}))
        for value in known.choices or (False, True)
    }
    return name in entry.view_of or len(read) > 1


def sentences_of(texts: Sequence[str]) -> list[str]:
    """Splits texts into sentences, and a lone sentence in two.

    Rows may read two sentences.

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
            'too_few_words',
            'give a sentence of two words or more: python -m infoword_tf.show '
            '--objectives=mlm "a sentence"',
        )
    return sentences


def choose(choices: ShowChoices, length: int) -> resolve.Resolved:
    """Resolves --objectives, or else --init, for a text of T tokens.

    Raises:
        UsageError: neither is named, or they cannot be resolved.
    """
    objectives, settings = choices.objectives, choices.settings
    masking, share, encoder = choices.masking, choices.mask_share, None
    if objectives is None:
        if not choices.init:
            raise UsageError(
                'nothing_to_show',
                '--objectives is missing: name a row or a sum, such as '
                f'{", ".join(TABLE)}',
            )
        config = Config.read(pathlib.Path(choices.init))
        objectives, encoder = ','.join(config.rows), config.encoder.name
        masking = masking or config.masking
        share = share or config.mask_share
        known = ShowChoices.setting_flags()
        of_run = {
            flag: value
            for row, entry in config.rows.items()
            for name, value in entry.settings.items()
            if (flag := flag_of(row, name)) in known
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
            memory_length=choices.memory_length or None,
        )
    )


def shortest(rows: Iterable[str], tokens: int) -> int:
    """Returns the least T that holds the tokens in all views of the rows."""
    sources = {VIEWS[view].source for row in rows for view in TABLE[row].views}
    if 'translations' in sources:  # two sides, each with room for any sentence
        return max(8, 2 * tokens + 3)
    if 'streams' in sources:  # two halves of one size
        return max(24, tokens + 3 + (tokens + 3) % 2)
    return max(8, tokens + 2)


def views_of(
    sentences: Sequence[str], tokenizer: Any, plan: Any, length: int, seed: int,
    steps: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Makes the views of steps, as a run does, of copies of the sentences."""
    from infoword_tf.data import store as stores
    from infoword_tf.data.batches import Batches, open_sources
    from infoword_tf.data.documents import Document
    from infoword_tf.data.source import WindowSource
    from infoword_tf.data.text_pairs import Columns
    from infoword_tf.data.translations import ParallelText, tokenized

    where = 'the command line'
    tokens = len(tokenizer.tokenize_flat([s.encode() for s in sentences]).ids)
    copies = 8 + 2 * BATCH * (steps + 1) * length // (tokens + 1)
    halves = zip(sentences[::2], sentences[1::2], strict=False)
    sides = [list(side) * 2 * BATCH for side in zip(*halves, strict=True)]
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
        for source in sources.values():
            if isinstance(source, WindowSource):
                # Each window is from the beginning of the text.
                vars(source)['starts'] = lambda step: np.zeros(BATCH, np.int64)
        batches = Batches(sources, plan, tokenizer.specials, seed)
        return [batches.views(step) for step in range(steps)]


def tokenizer_of(
    sentences: list[str], choices: ShowChoices
) -> tuple[list[str], Any]:
    """Reads the tokenizer of --init or --vocab, or learns the words.

    Returns:
        The sentences, with spaces around words that were learned; and the
        tokenizer.
    """
    if choices.init:
        from infoword_tf.workdir import read_tokenizer

        folder = pathlib.Path(choices.init)
        return sentences, read_tokenizer(folder, Config.read(folder))
    if choices.vocab:
        from infoword_tf.data.opened import open_tokenizer

        vocab, lower_case = choices.vocab, choices.lower_case
        text = TextChoices(vocab=vocab, lower_case=lower_case)
        return sentences, open_tokenizer(text, {}, pathlib.Path())
    from infoword_tf.text.wholewords import WholeWords

    words = (re.findall(r'\w+|[^\w\s]', text) for text in sentences)
    sentences = list(map(' '.join, words))
    lower_case = bool(choices.lower_case)
    return sentences, WholeWords.learn(sentences, lower_case=lower_case)


@commands.takes(ShowChoices)
def run(
    texts: Sequence[str], choices: ShowChoices, chosen: Mapping[str, Any]
) -> None:
    """Draws the views, and prints the path of the PNG.

    Raises:
        UsageError, ValueError: as the message says.
    """
    if choices.init and choices.vocab:
        raise UsageError(
            'init_and_vocab', '--init brings its vocabulary; leave out --vocab'
        )
    resolved = choose(choices, choices.seq_len or 512)
    if resolved.plan.labelled:
        raise UsageError(
            'labelled_views',
            'these rows read labelled examples as they are: there is no view '
            'of a text to draw',
        )
    sentences, tokenizer = tokenizer_of(sentences_of(texts), choices)
    tokens = tokenizer.tokenize_flat([text.encode() for text in sentences]).ids
    length = choices.seq_len or shortest(resolved.rows, len(tokens))
    settings = choices.settings
    if 'words' in resolved.plan.views:  # in so short a text all stay
        settings = {'words.subsample': 0.0, **settings}
    resolved = choose(dataclasses.replace(choices, settings=settings), length)
    plan, encoder = resolved.plan, resolved.encoder
    memory = choices.memory_length
    if memory is None:
        memory = 0 if resolved.memory_length is None else length // 4
    advance = min(
        dict(spec.arguments).get('advance', length)
        for spec in plan.source_specs
    )
    steps = 1 + -(-memory // advance)  # until the memory is full
    *before, last = views_of(
        sentences,
        tokenizer,
        plan=plan,
        length=length,
        seed=choices.seed,
        steps=steps,
    )
    # A value of the class, or a setting with a default.
    causal = ENCODERS[encoder.name].causal
    causal = encoder.arguments.get('causal', getattr(causal, 'default', causal))
    panels = []
    for name, view in last.items():
        past = [pictures.first(views[name].ids)[:advance] for views in before]
        ids = np.concatenate(past)[-memory:].tolist() if memory else ()
        panels.append(
            pictures.picture(
                name,
                view,
                plan.views[name].rows,
                words=tokenizer.vocabulary,
                specials=tokenizer.specials,
                causal=causal,
                memory=ids,
            )
        )
    rows = [
        f'{row}.  a: {TABLE[row].a}.  b: {TABLE[row].b}: '
        f'{TABLE[row].relation}.  Candidates: {TABLE[row].candidates}.'
        for row in resolved.rows
    ]
    pictures.draw(pathlib.Path(choices.output), rows, panels)
    print(choices.output)


if __name__ == '__main__':
    commands.start(run, 'the sentences', commands.NOTHING)
