"""From a corpus to what is trained on: its tokenizer and its token stores.

Stores and learned vocabularies are kept in the cache, so that the next run on
the same text opens them at once.
"""

import hashlib
import itertools
import math
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from infoword_tf import files
from infoword_tf.choices import (
    VOCAB_SIZE,
    TextChoices,
    by_language,
    name_of,
)
from infoword_tf.data import corpora, documents
from infoword_tf.data import store as stores
from infoword_tf.data.corpora import Corpus
from infoword_tf.data.mixture import Mixture, shares
from infoword_tf.data.store import Store
from infoword_tf.errors import UsageError


class Text(NamedTuple):
    """A corpus, opened.

    Attributes:
        tokenizer: of both parts.
        train: its token store, or those of several languages.
        heldout: likewise.
        fingerprint: changes when the text does.
    """

    tokenizer: Any
    train: Store | Mixture
    heldout: Store | Mixture
    fingerprint: str

    @property
    def parts(self) -> dict[str, tuple[Store, Store]]:
        """By language what is trained on and what is held out; '' of one."""
        if not isinstance(self.train, Mixture):
            return {'': (self.train, self.heldout)}
        return {
            language: (store, self.heldout.stores[language])
            for language, store in self.train.stores.items()
        }


def kind_of(vocab: str) -> str:
    """The tokenizer that a vocabulary is for, by the name of its file."""
    if vocab.endswith('.model'):
        return 'sentencepiece'
    if vocab.endswith('.json'):
        return 'bytes'
    return 'words' if vocab.endswith('words.txt') else 'wordpiece'


def choose_tokenizer(choices: TextChoices) -> str:
    """The tokenizer that was chosen, or that a vocabulary is for; UsageError:
    choices that do not go together.
    """
    kind, vocab = choices.tokenizer, choices.vocab
    if not vocab:
        return kind or 'wordpiece'
    found = kind_of(vocab)
    says_all = found in ('sentencepiece', 'bytes')
    if not says_all and kind == 'words':
        found = kind  # as any file of one word a line
    if kind not in (None, found):
        raise UsageError(
            f'--tokenizer={kind}: --vocab={vocab} is for {found} (the names '
            'of SentencePiece models end in .model, those of byte pairs in '
            '.json, those of words in words.txt); leave out one of the two'
        )
    if choices.vocab_size is not None:
        raise UsageError(
            f'--vocab_size={choices.vocab_size} is for a vocabulary that is '
            f'learned, not for --vocab={vocab}; leave out one of the two'
        )
    if says_all and choices.lower_case is not None:
        raise UsageError(
            f'--lower_case is decided by --vocab={vocab}; leave it out'
        )
    return found


def open_corpora(
    choices: TextChoices, cache: pathlib.Path | None = None
) -> dict[str, Corpus]:
    """The corpora that were chosen, by language, sorted; '' for one alone.

    Raises:
        UsageError: there is none, or held-out files are of a language that no
            corpus has.
        ValueError: as `corpora.open_corpus`.
    """
    names = by_language(choices.corpus)
    heldout = by_language(choices.heldout, names)
    if not names:
        raise UsageError(
            '--corpus is missing: name a text, as --corpus=text:GLOB'
        )
    for language, pattern in heldout.items():
        if language not in names:
            listed = ', '.join(filter(None, names))
            raise UsageError(
                f'--heldout={language}={pattern}: no --corpus has this '
                f'language; there is {listed or "none"}'
                if language
                else f'--heldout={pattern}: of which language? There are '
                f'{listed}: --heldout=LANGUAGE={pattern}'
            )
    return {
        language: corpora.open_corpus(name, heldout.get(language), cache)
        for language, name in names.items()
    }


def weights_of(choices: TextChoices) -> dict[str, float]:
    """What --corpus_weights says, by name of each corpus; none: nothing.

    Raises:
        UsageError: it does not fit what --corpus names.
    """
    found, names = {}, by_language(choices.corpus)
    for one in choices.corpus_weights:
        name, _, number = one.partition('=')
        name = name_of(name)
        if name not in names or '' in names:
            listed = ', '.join(filter(None, names))
            raise UsageError(
                f'--corpus_weights={one}: no --corpus has this name; there is '
                f'{listed or "none, as --corpus=web=text:GLOB"}'
            )
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < math.inf:
            raise UsageError(
                f'--corpus_weights={one}: give a name and a number above 0, '
                'as web=3'
            )
    if found and (lacking := sorted(set(names) - set(found))):
        raise UsageError(
            f'--corpus_weights={",".join(choices.corpus_weights)}: '
            f'{", ".join(lacking)} has none; give each --corpus one'
        )
    return found


def check_text(choices: TextChoices) -> None:
    """Complains of files that are not there, before TensorFlow is imported.

    What pydocs is built from is always there, and building takes its time.
    """
    choose_tokenizer(choices)
    if by_language(choices.corpus) != {'': 'pydocs'}:
        open_corpora(choices)


def open_tokenizer(
    choices: TextChoices,
    texts: Mapping[str, Corpus],
    cache: pathlib.Path,
) -> Any:
    """What --vocab names, or what was learned from the text.

    Args:
        texts: by language. Of several each has a share in proportion to its
            size to the power of --language_exponent, or the one that
            --corpus_weights gives it: of larger ones some sentences are left
            out.

    Raises: UsageError: as `choose_tokenizer`; ValueError: the vocabulary cannot
    be read, or none be learned.
    """
    from infoword_tf.text.tokenizers import TOKENIZERS

    kind = TOKENIZERS[choose_tokenizer(choices)]
    lower_case = choices.lower_case
    if lower_case is None:
        lower_case = not kind.as_written
    if choices.vocab:
        return kind.read(choices.vocab, lower_case)
    size = choices.vocab_size or (None if kind.unbounded else VOCAB_SIZE)
    key = f'{fingerprint_of(texts)}-{size}-{lower_case}'
    weights = {}
    if len(texts) > 1:
        weights = weights_of(choices)
        exponent = f'{choices.language_exponent:g}'
        key += f'-{sorted(weights.items()) or exponent}'
    learned = cache / 'vocabularies' / f'{_digest(key)}.{kind.file}'
    digest = learned.with_name(f'{learned.name}.digest')
    if learned.exists():
        # One that older code has learned has none.
        if digest.exists() and digest.read_text() != files.digest_of(learned):
            raise ValueError(
                f'{learned} is damaged: its bytes are not those that were '
                'written; delete it and run again'
            )
        return kind.read(learned, lower_case)
    began = time.monotonic()
    tokenizer = kind.learn(
        _to_learn(texts, choices.language_exponent, weights), size, lower_case
    )
    learned.parent.mkdir(parents=True, exist_ok=True)
    with files.written(learned) as partial:
        tokenizer.write(partial)
        with files.written(digest) as first:
            first.write_text(files.digest_of(partial))
    print(
        f'learned {len(tokenizer):,} pieces in '
        f'{time.monotonic() - began:.0f} s',
        flush=True,
    )
    return tokenizer


def fingerprint_of(texts: Mapping[str, Corpus]) -> str:
    """Changes when one of the texts does."""
    if len(texts) == 1:
        return next(iter(texts.values())).fingerprint
    return ' '.join(f'{k} {x.fingerprint}' for k, x in texts.items())


def _to_learn(
    texts: Mapping[str, Corpus], exponent: float, weights: Mapping[str, float]
) -> Iterator[str]:
    """What a vocabulary is learned from: text of all languages."""
    if len(texts) == 1:
        (corpus,) = texts.values()
        for document in corpus.train():
            yield ' '.join(documents.parts(document.text))
        return
    sizes = [
        sum(len(s) for document in corpus.train() for s in document.sentences)
        for corpus in texts.values()
    ]
    wanted = shares(sizes, exponent)
    if weights:
        wanted = shares([weights[name] for name in texts], 1.0)
    wanted = wanted / sizes
    for corpus, rate in zip(
        texts.values(), wanted / wanted.max(), strict=True
    ):
        number = 0
        for document in corpus.train():
            for sentence in document.sentences:
                number += 1
                # So many of them, evenly spread.
                if math.floor(number * rate) > math.floor((number - 1) * rate):
                    yield ' '.join(documents.parts(sentence))


def open_text(
    choices: TextChoices,
    tokenizer: Any = None,
    more: Mapping[str, Corpus] | None = None,
) -> Text:
    """Opens both parts of the corpora, and says how large they are.

    Args:
        tokenizer: what --init brings; None: one is chosen.
        more: by language, what a vocabulary is learned from besides.

    Raises: as `open_corpora` and `open_tokenizer`, and ValueError: there is no
    text.
    """
    cache = files.cache_dir()
    texts = open_corpora(choices, cache)
    if tokenizer is None:
        tokenizer = prepared_tokenizer(choices, texts) or open_tokenizer(
            choices, together(texts, more or {}), cache
        )
    found: dict[str, dict[str, Store]] = {'train': {}, 'heldout': {}}
    for language, corpus in texts.items():
        train, heldout = _stores(corpus, tokenizer, cache)
        found['train'][language], found['heldout'][language] = train, heldout
        print(
            (f'{language}: ' if len(texts) > 1 else '')
            + f'{corpus.name}: {len(train.ids):,} tokens to train on, '
            f'{len(heldout.ids):,} held out, {len(tokenizer):,} pieces',
            flush=True,
        )
    fingerprint = fingerprint_of(texts)
    if len(texts) == 1:
        (train,), (heldout,) = (part.values() for part in found.values())
        return Text(tokenizer, train, heldout, fingerprint)
    train, heldout = (
        Mixture(part, choices.language_exponent, weights_of(choices))
        for part in found.values()
    )
    drawn = zip(train.stores, train.shares, strict=True)
    listed = ', '.join(f'{language} {share:.1%}' for language, share in drawn)
    print(f'of the updates: {listed}', flush=True)
    return Text(tokenizer, train, heldout, fingerprint)


def prepared_tokenizer(
    choices: TextChoices, texts: Mapping[str, Corpus]
) -> Any:
    """That of prepared text; None: there is no such text.

    Raises:
        UsageError: another one is asked for.
        ValueError: the vocabulary is damaged.
    """
    opened = [x.store for x in texts.values() if x.store is not None]
    if not opened:
        return None
    for name in ('tokenizer', 'vocab', 'vocab_size', 'lower_case'):
        if getattr(choices, name) is not None:
            raise UsageError(
                f'--{name} was decided when {opened[0].folder} was prepared; '
                'leave it out'
            )
    return opened[0].tokenizer()


def _stores(
    corpus: Corpus, tokenizer: Any, cache: pathlib.Path
) -> tuple[Store, Store]:
    """What is trained on and what is held out; tokenized at the first use."""
    if corpus.store is not None:
        if corpus.store.index['identity'] != identity_of(tokenizer):
            raise ValueError(
                f'{corpus.name} was prepared with another vocabulary than '
                'that of the weights, or of the other texts; prepare it with '
                'that one (--vocab)'
            )
        return corpus.store.stores(tokenizer)
    key = '\n'.join(
        [
            corpus.fingerprint,
            str(tokenizer.lower_case),
            tokenizer.identity,
            str(documents.SPLITTING),
        ]
    )
    folder, found = cache / 'stores' / _digest(key), []
    for part, read in (('train', corpus.train), ('heldout', corpus.heldout)):
        if (folder / part).is_dir():
            found.append(stores.open_store(folder / part, tokenizer))
            continue
        what = 'training' if part == 'train' else 'held-out'
        some = stores.peek(
            read(),
            f'--corpus={corpus.name} has no {what} documents; give more text, '
            'or name held-out files with --heldout=GLOB',
        )
        found.append(stores.write_store(folder / part, some, tokenizer))
    return tuple(found)


def together(
    texts: Mapping[str, Corpus], more: Mapping[str, Corpus]
) -> dict[str, Corpus]:
    """By language, sorted, all there is of it."""
    found: dict[str, list[Corpus]] = {}
    for language, corpus in itertools.chain(texts.items(), more.items()):
        found.setdefault(language, []).append(corpus)
    return {k: corpora.chained(some) for k, some in sorted(found.items())}


def digest_of(tokenizer: Any) -> str:
    """Hexadecimal; changes when the vocabulary does."""
    return _digest(tokenizer.identity)[:12]


def identity_of(tokenizer: Any) -> str:
    """Hexadecimal; equal for tokenizers that give equal ids."""
    options = sorted(tokenizer.options.items())
    return _digest(f'{tokenizer.identity} {tokenizer.lower_case} {options}')


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
