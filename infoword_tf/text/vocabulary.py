"""Vocabularies in BERT's format: learned, read, checked, written.

A vocabulary is a list of tokens in the order of their ids. `vocab.txt` holds
one token a line.
"""

import collections
import hashlib
import heapq
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from infoword_tf import errors

PAD, UNK, CLS, SEP, MASK = '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'
SPECIALS = (PAD, UNK, CLS, SEP, MASK)
UNKNOWN = '<unk>'  # how public corpora write a word that was taken out


def no_text() -> errors.InputError:
    """Makes the error for a corpus of which nothing can be learned."""
    return errors.InputError(
        'no_text_to_learn',
        'the corpus holds no text to learn a vocabulary from; check --corpus, '
        'or give a vocabulary with --vocab',
    )


def no_room(size: int, why: str) -> errors.InputError:
    """Makes the error for a size without room for all tokens."""
    return errors.InputError(
        'small_vocab_size', f'--vocab_size={size} has no room {why}'
    )


def check(
    vocabulary: Sequence[str], where: str, specials: Sequence[str] = SPECIALS
) -> list[str]:
    """Returns the tokens; ValueError: a special is missing, or any twice."""
    vocabulary = list(vocabulary)
    missing = [token for token in specials if token not in vocabulary]
    if missing:
        raise errors.InputError(
            'vocabulary_without_specials',
            f'{where}: the vocabulary lacks {", ".join(missing)}; add a line '
            'for each, or leave out --vocab to learn one from the corpus',
        )
    seen: dict[str, int] = {}
    for line, token in enumerate(vocabulary, 1):
        if token in seen:
            raise errors.InputError(
                'token_twice',
                f'{where}: {token!r} is on line {seen[token]} and again on '
                f'line {line}; keep one of them (ids of later tokens move)',
            )
        seen[token] = line
    return vocabulary


def special_ids(
    vocabulary: Sequence[str], specials: Sequence[str] = SPECIALS
) -> tuple[list[int], list[int]]:
    """Returns the ids of special tokens; and, sorted, without that of [UNK]."""
    ids = [vocabulary.index(token) for token in specials]
    return ids, sorted({*ids} - {ids[1]})


def unnamed(number: int) -> str:
    """Names an id without a token, with a blank, which no text spells."""
    return f'[no {number}]'


def read(
    path: str | pathlib.Path, specials: Sequence[str] = SPECIALS
) -> list[str]:
    """Reads and checks a `vocab.txt`."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'{path}: no such vocabulary; --vocab takes a vocab.txt with one '
            'token a line, or a SentencePiece *.model'
        )
    try:
        lines = path.read_text(encoding='utf-8').split('\n')
    except UnicodeDecodeError as error:
        raise errors.InputError(
            'vocabulary_not_utf8',
            f'{path}: byte {error.start} is not UTF-8; a vocabulary is a text '
            'file with one token a line',
        ) from error
    while lines and not lines[-1]:
        lines.pop()
    return check(lines, str(path), specials)


def write(path: str | pathlib.Path, vocabulary: Sequence[str]) -> None:
    """Writes a `vocab.txt`."""
    text = ''.join(token + '\n' for token in vocabulary)
    pathlib.Path(path).write_text(text, encoding='utf-8')


def sample(texts: Iterable[str], megabytes: float = 64.0) -> Iterator[str]:
    """Samples texts up to a total size, uniformly and reproducibly.

    The texts of the lowest hashes that fit are taken, whatever the order of
    the corpus. One text is taken however large it is.
    """
    budget, limit = int(megabytes * 1e6), 2**64
    heap: list[tuple[int, str]] = []  # the highest hash on top
    size = 0
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        order = int.from_bytes(digest, 'big')
        if order >= limit:
            continue
        heapq.heappush(heap, (-order, text))
        size += len(text)
        while size > budget and len(heap) > 1:
            order, last = heapq.heappop(heap)
            limit, size = -order, size - len(last)
    return (text for _, text in heap)


def learn(
    texts: Iterable[str], size: int, lower_case: bool = True
) -> list[str]:
    """Learns a WordPiece vocabulary (Schuster and Nakajima 2012).

    Args and errors are those of `TextTokenizer.learn`; without case there are
    no accents. Specials come first, then characters, then longer tokens.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    # Each character is a token at the beginning of a word and one inside.
    max_characters = (size - len(SPECIALS)) // 2
    if max_characters < 1:
        raise no_room(
            size,
            f'beside the {len(SPECIALS)} special tokens; a few thousand is '
            'usual',
        )
    texts = list(sample(texts))
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNK))
    learner.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet, continuing = _alphabet(
        texts,
        learner.normalizer,
        learner.pre_tokenizer,
        min(1000, max_characters),
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        # The trainer breaks ties between merges by the numbers of characters
        # inside words, which it gives in the order of a hash map, another in
        # each call; named here they have the same number every time.
        special_tokens=[*SPECIALS, *(f'##{c}' for c in continuing)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix='##',
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    index = learner.get_vocab()
    if not alphabet:
        raise no_text()
    in_order = sorted(index, key=index.__getitem__)
    return check(in_order, 'the learned vocabulary')


def _alphabet(
    texts: Sequence[str], normalizer: Any, pre_tokenizer: Any, most: int
) -> tuple[list[str], list[str]]:
    """Returns the commonest characters, lest rare scripts fill a small
    vocabulary, and which of the characters occur inside words.
    """
    words: collections.Counter[str] = collections.Counter()
    for text in texts:
        words.update(normalizer.normalize_str(text).split())
    counts: collections.Counter[str] = collections.Counter()
    continuing: set[str] = set()
    for word, count in words.items():
        for part, _ in pre_tokenizer.pre_tokenize_str(word):
            for character in part:
                counts[character] += count
            continuing.update(part[1:])
    common = sorted(counts, key=lambda c: (-counts[c], c))[:most]
    return sorted(common), sorted(continuing.intersection(common))
