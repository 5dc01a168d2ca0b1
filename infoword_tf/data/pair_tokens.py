"""Texts of --pairs and of --parallel, as tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from infoword_tf.choices import RunChoices
from infoword_tf.data import text_pairs, translations

Texts = TypeVar('Texts', text_pairs.TextPairs, translations.ParallelText)


class TokenizedPairs(NamedTuple, Generic[Texts]):
    """Tokenized texts of --pairs or --parallel.

    Attributes:
        train, heldout: the examples.
        fingerprint: changes when the texts do.
        guides: folder and digest of the weights of each guide or judge, by
            flag; the examples hold its numbers.
    """

    train: Texts
    heldout: Texts
    fingerprint: str
    guides: Mapping[str, tuple[str, str]] = {}


def of_pairs(
    columns: Sequence[text_pairs.Columns],
    choices: RunChoices,
    purpose: str,
    template: Any,
    prompts: tuple[str, str],
    sides: Mapping[str, Any],
    numbers: Mapping[str, Callable[..., np.ndarray]],
) -> text_pairs.TextPairs:
    """Tokenizes one part of --pairs, and prints the sizes.

    Args:
        columns: texts of the part.
        choices: checked.
        purpose: use of the part, for people.
        template: special tokens around a text.
        prompts: texts before queries, and before passages.
        sides: settings of the view.
        numbers: function of texts that a guide or judge computes, by row.
    """
    length = choices.seq_len
    part, truncated = text_pairs.tokenized(
        columns,
        template,
        max_lengths=(
            min(length, sides['query_length'] or length),
            min(length, sides['passage_length'] or length),
        ),
        prompts=prompts,
        guides=numbers,
        expand=sides['expand'],
    )
    sizes = ' and '.join(f'{p.size:,}' for p in part.parts)
    print(
        f'{choices.pairs}: {sizes} examples {purpose}'
        + (f', a text of {truncated:,} is truncated' if truncated else ''),
        flush=True,
    )
    return part


def of_translations(
    choices: RunChoices, tokenizer: Any, bitexts: text_pairs.PairCorpus
) -> TokenizedPairs[translations.ParallelText]:
    """Tokenizes the texts of --parallel."""
    print('\n'.join(bitexts.notes), flush=True)
    train, heldout = (
        translations.ParallelText(
            {  # in the order of their languages
                '-'.join(x.languages): translations.tokenized(
                    x, tokenizer, choices.seq_len
                )
                for x in columns
            },
            choices.language_exponent,
        )
        for columns in (bitexts.train, bitexts.heldout)
    )
    if truncated := train.truncated + heldout.truncated:
        print(f'of {truncated:,} pairs a text is truncated', flush=True)
    return TokenizedPairs(train, heldout, bitexts.fingerprint)
