"""A model that `export.litert` has written: strings in, vectors or classes out.

    model = Model('models/phone')
    model.encode(['strings in'])           # float32 [n, D]
    model.classify(['a text'], ['another'])  # float32 [n, C], see `labels`

    python models/phone/model.py "strings in" "a second text"

As a command it prints one JSON object for each text.

This file stands alone in the folder of the model. It needs numpy and
ai-edge-litert (or TensorFlow); `WordPiece` needs the standard library alone.
The folder:

    model.tflite      for each length T a signature: ids [1, T], length [1]
                      and, of two texts, where the second begins [1], int32
    model.json        signatures, and special tokens around a text
    vocab.txt         tokens in the order of their ids
    characters.json   how characters are normalized
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import pathlib
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

_LONGEST_WORD = 100  # characters; a longer word is unknown
_WORDS = 1 << 16  # whose tokens are cached
_UNKNOWN = '[UNK]'


class LitertModel:
    """A folder of `export.litert` in memory, for one thread at a time.

    Attributes:
        signatures: the width of answers, by name.
        labels: names of the classes, in the order of their probabilities.
        lengths: numbers of tokens that texts are padded to.
        tokenizer: `ids(text)` returns the ids of its tokens.
    """

    def __init__(self, folder: str | pathlib.Path, threads: int = 1):
        """Reads the files of a model.

        Args:
            folder: output of export.litert.
            threads: number for each text; one is fastest for short texts.

        Raises:
            ImportError: ai-edge-litert is missing.
            FileNotFoundError: the folder has no model.
        """
        folder = pathlib.Path(folder)
        if not (folder / 'model.json').is_file():
            raise FileNotFoundError(
                f'{folder} has no model.json: it is not of export.litert'
            )
        self._facts = json.loads((folder / 'model.json').read_text('utf-8'))
        self.signatures: dict[str, int] = self._facts['signatures']
        self.labels: list[str] = self._facts['labels']
        self.lengths: list[int] = self._facts['lengths']
        self.tokenizer = read_tokenizer(folder)
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            try:
                from tensorflow.lite import Interpreter
            except ImportError:
                raise ImportError(
                    'ai-edge-litert is missing: pip install ai-edge-litert'
                ) from None
        interpreter = Interpreter(
            str(folder / 'model.tflite'), num_threads=threads
        )
        self._runner = functools.cache(interpreter.get_signature_runner)

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> Any:
        """Computes vectors of texts.

        Args:
            texts: n strings.
            prompt: name of the prompt before each text; None: the model's,
                '': none.

        Returns:
            float32 [n, D].

        Raises:
            ValueError: this model gives no vectors, or has no such prompt.
        """
        prompts = {'': '', **self._facts['prompts']}
        name = self._facts['prompt'] if prompt is None else prompt
        _check_list(texts)
        if name not in prompts:
            known = ', '.join(self._facts['prompts']) or 'none'
            raise ValueError(f'prompt {name!r}: this model has {known}')
        return self._all('embed', [prompts[name] + text for text in texts])

    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """Computes probabilities of classes.

        Args:
            texts: n strings.
            pairs: n second texts, of a model that reads two.

        Returns:
            float32 [n, C], in the order of `labels`; of one class alone, and
            of each where a text may have several, the logistic function of its
            score.

        Raises:
            ValueError: this model does not classify such texts.
        """
        import numpy as np

        scores = self.scores(texts, pairs)
        if self._facts['multilabel'] or scores.shape[1] == 1:
            return 1 / (1 + np.exp(-scores))
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def scores(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """Computes scores (logits) of classes, [n, C] float32."""
        return self._all('classify', texts, pairs)

    def rate(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """Predicts the numbers of texts, [n] float32; args as of `classify`."""
        return self._all('regress', texts, pairs)[:, 0]

    def _all(
        self,
        signature: str,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
    ) -> Any:
        """Computes a signature of each text: [n, width] float32."""
        import numpy as np

        sides = [texts] if pairs is None else [texts, pairs]
        name = signature + '_pairs' * (len(sides) - 1)
        if name not in self.signatures:
            raise ValueError(
                f'this model has {", ".join(self.signatures)}, no {name}'
            )
        _check_list(texts)
        outputs = np.zeros((len(texts), self.signatures[name]), np.float32)
        for i, example in enumerate(zip(*sides, strict=True)):
            ids = [self.tokenizer.ids(text) for text in example]
            outputs[i] = self._one(name, *ids)
            if self._facts['both_ways']:
                outputs[i] += self._one(name, *ids[::-1])
        return outputs

    def _one(
        self, name: str, first: list[int], second: list[int] | None = None
    ) -> Any:
        """Computes a signature of the ids of a text, or of two: [width]."""
        import numpy as np

        before, *between, after = self._facts[
            'around' if second is None else 'around_two'
        ]
        limit = self.lengths[-1] - len(before) - len(after)
        more = {}
        if second is None:
            sequence = before + first[:limit]
        else:
            (between,) = between
            sizes = _fitting_lengths(
                len(first), len(second), limit - len(between)
            )
            sequence = before + first[: sizes[0]] + between
            more['second'] = np.array([len(sequence)], np.int32)
            sequence += second[: sizes[1]]
        sequence += after
        size = len(sequence)
        length = self.lengths[bisect.bisect_left(self.lengths, size)]
        ids = np.full((1, length), self._facts['padding'], np.int32)
        ids[0, :size] = sequence
        (answer,) = self._runner(f'{name}_{length}')(
            ids=ids, length=np.array([size], np.int32), **more
        ).values()
        return answer[0]


Model = LitertModel  # the name for users


def _check_list(texts: Sequence[str]) -> None:
    """Raises TypeError of one string, a sequence of characters."""
    if isinstance(texts, str):
        raise TypeError('this takes a list of texts, this is one string')


def _fitting_lengths(first: int, second: int, total: int) -> tuple[int, int]:
    """Returns how many tokens of two texts stay; the longer is truncated."""
    if first + second <= total:
        return first, second
    least = min(first, second, total // 2)
    return (total - least, least) if first > second else (least, total - least)


class WordPiece:
    """BERT's tokenizer: the longest token first, from the left of a word."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        characters: dict[str, Any],
        normalized: dict[str, Any] | None = None,
        added: Sequence[dict[str, Any]] = (),
    ):
        """Builds the tokenizer.

        Args:
            vocabulary: tokens in the order of their ids.
            characters: rules of normalization, as in characters.json.
            normalized: likewise for texts in which `added` tokens with
                `normalized` are found, before words are split.
            added: tokens that are found in texts before all else.
        """
        self._normalized = _Characters(normalized or {'runs': [], 'forms': {}})
        self._written, self._normal = (
            _Added(
                {
                    t['content'].translate(self._normalized)
                    if normal else t['content']: t
                    for t in reversed(added)
                    if t['normalized'] == normal
                }
            )
            for normal in (False, True)
        )  # fmt: skip
        self._ids = {token: number for number, token in enumerate(vocabulary)}
        self._longest = max(map(len, vocabulary))
        self._characters = _Characters(characters)
        self._word = functools.lru_cache(_WORDS)(self._tokens)

    def ids(self, text: str) -> list[int]:
        """Returns ids of the tokens of a text, also of added tokens.

        Other special tokens are read as text.
        """
        ids: list[int] = []
        for item in self._written.split(text):
            if isinstance(item, int):
                ids.append(item)
            else:
                ids += self._between(item)
        return ids

    def _between(self, text: str) -> list[int]:
        """Returns ids of a text between two tokens that stand as written."""
        ids: list[int] = []
        if self._normal.pattern:
            text = text.translate(self._normalized)
        for item in self._normal.split(text):
            if isinstance(item, int):
                ids.append(item)
            else:
                ids += self._plain(item)
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in text.translate(self._characters).split(' '):
            if word:
                ids += self._word(word)
        return ids

    def _tokens(self, word: str) -> tuple[int, ...]:
        unknown = (self._ids[_UNKNOWN],)
        if len(word) > _LONGEST_WORD:
            return unknown
        ids, begin, mark = [], 0, ''
        while begin < len(word):
            end = min(len(word), begin + self._longest)
            while end > begin and mark + word[begin:end] not in self._ids:
                end -= 1
            if end == begin:
                return unknown
            ids.append(self._ids[mark + word[begin:end]])
            begin, mark = end, '##'
        return tuple(ids)


class _Added:
    """Tokens that are found in a text as written, as by `tokenizers`.

    The longest at each place, from the left.
    """

    def __init__(self, tokens: dict[str, dict[str, Any]]):
        self._tokens = {text: t for text, t in tokens.items() if text}
        spelled = sorted(self._tokens, key=len, reverse=True)
        self.pattern = '|'.join(map(re.escape, spelled))
        self._find = re.compile(self.pattern).finditer

    def split(self, text: str) -> list[str | int]:
        """Splits a text at the tokens: texts, and ids between two texts."""
        if not self.pattern:
            return [text]
        parts: list[str | int] = []
        begin = 0
        for match in self._find(text):
            token = self._tokens[match[0]]
            first, last = match.span()
            around = text[max(first - 1, 0) : first] + text[last : last + 1]
            if token['single_word'] and any(map(_of_word, around)):
                continue
            before = text[begin:first]
            parts.append(before.rstrip() if token['lstrip'] else before)
            parts.append(token['id'])
            if token['rstrip']:
                last += len(text[last:]) - len(text[last:].lstrip())
            begin = last
        return [*parts, text[begin:]]


def _of_word(character: str) -> bool:
    """Tells whether a character is one of words (Unicode's \\w)."""
    kind = unicodedata.category(character)
    return kind[0] in 'LM' or kind in ('Nd', 'Nl', 'Pc')


class _Characters(dict):
    """A table for str.translate: normalized forms by code point."""

    def __init__(self, table: dict[str, Any]):
        super().__init__(
            (ord(character), form) for character, form in table['forms'].items()
        )
        self._runs = [tuple(run) for run in table['runs']] or [(0, -1, '')]

    def __missing__(self, code: int) -> str:
        """Returns the form of a character in a run, or the character."""
        place = bisect.bisect_right(self._runs, (code, math.inf)) - 1
        first, last, form = self._runs[max(place, 0)]
        inside = first <= code <= last
        self[code] = form.replace('*', chr(code)) if inside else chr(code)
        return self[code]


def read_tokenizer(folder: pathlib.Path) -> WordPiece:
    """Reads the tokenizer of a folder."""
    lines = (folder / 'vocab.txt').read_bytes().decode().split('\n')
    while lines and not lines[-1]:
        lines.pop()
    known = json.loads((folder / 'characters.json').read_text('utf-8'))
    return WordPiece(
        lines, known, known.get('normalized'), known.get('added', ())
    )


def main(texts: Sequence[str]) -> None:
    """Prints the answers of the model in the folder of the file."""
    model = Model(pathlib.Path(__file__).resolve().parent)
    for text in texts:
        if 'embed' in model.signatures:
            answer: Any = {'embedding': model.encode([text])[0].tolist()}
        elif 'classify' in model.signatures:
            odds = model.classify([text])[0].tolist()
            names = model.labels or map(str, range(len(odds)))
            answer = dict(zip(names, odds, strict=True))
        elif 'regress' in model.signatures:
            answer = {'score': float(model.rate([text])[0])}
        else:
            sys.exit('this model reads two texts: call Model from Python')
        print(json.dumps(answer, ensure_ascii=False))


if __name__ == '__main__':
    main(sys.argv[1:])
