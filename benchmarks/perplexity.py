"""Perplexity over the memory that a text is read with: a table, a picture.

    python -m benchmarks.perplexity --output=runs/wikitext/memory.png \
        runs/wikitext/*/lm_*/metrics.json

Reads what `tasks.lm` wrote, of any number of models, each evaluated with any
memory: a line of the table for each model, a column for each memory. Results
on different text are refused.
"""

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

OUTPUT = flags.DEFINE_string(
    'output', None, 'Where the picture goes.', required=True)
FIGURE = flags.DEFINE_enum(
    'figure', 'perplexity_per_word',
    ['perplexity_per_piece', 'perplexity_per_word', 'bits_per_character'],
    'Which of the three.')

TEXT = ('pieces', 'words', 'characters')  # what has to be the same


def name_of(record: dict[str, Any]) -> str:
    """A model, and what it was evaluated with that training had not."""
    name = pathlib.Path(record['weights']).name
    more = [
        f'{key} {record[key]}'
        for key in ('clamp', 'same_length')
        if key in record
    ]
    return ', '.join([name, *more])


def gather(paths: Sequence[str]) -> dict[str, dict[int, float]]:
    """The figure by model and tokens of memory.

    Raises:
        ValueError: results on different texts.
    """
    records = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    found: dict[str, dict[int, float]] = {}
    for path, record in zip(paths, records, strict=True):
        if any(record[key] != records[0][key] for key in TEXT):
            raise ValueError(f'{path} is of another text than {paths[0]}')
        memories = found.setdefault(name_of(record), {})
        memories[record['memory_length']] = record[FIGURE.value]
    return {
        name: dict(sorted(memories.items()))
        for name, memories in found.items()
    }


def lengths_of(found: dict[str, dict[int, float]]) -> list[int]:
    """All memories that any model was evaluated with."""
    return sorted({length for one in found.values() for length in one})


def table(found: dict[str, dict[int, float]]) -> str:
    """Markdown, a column for each memory."""
    lengths = lengths_of(found)
    lines = [
        f'| model | {" | ".join(f"memory {length}" for length in lengths)} |',
        '|' + '---|' * (1 + len(lengths)),
    ]
    for name, one in found.items():
        shown = [
            f'{one[length]:.2f}' if length in one else '-'
            for length in lengths
        ]
        lines.append(f'| {name} | {" | ".join(shown)} |')
    return '\n'.join(lines)


def draw(path: pathlib.Path, found: dict[str, dict[int, float]]) -> None:
    """One curve for each model."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4))
    for name, one in found.items():
        axis.plot(list(one), list(one.values()), marker='.', label=name)
    axis.set_xticks(lengths_of(found))
    axis.set_xlabel('tokens of memory while the text is read')
    axis.set_ylabel(FIGURE.value.replace('_', ' '))
    axis.spines[['top', 'right']].set_visible(False)
    axis.legend(frameon=False, loc='upper left', bbox_to_anchor=(1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, bbox_inches='tight')
    pyplot.close(figure)


def main(argv: Sequence[str]) -> None:
    """Prints the table and draws the picture."""
    if len(argv) < 2:
        raise app.UsageError('name metrics.json files that tasks.lm wrote')
    try:
        found = gather(argv[1:])
    except (ValueError, OSError, KeyError) as error:
        sys.exit(f'error: {error}')
    draw(pathlib.Path(OUTPUT.value), found)
    print(table(found))


if __name__ == '__main__':
    app.run(main)
