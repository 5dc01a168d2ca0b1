"""Pages of docs/ that are made: python -m tests.pages

docs/settings.md is made of rows and views, the table of encoders in
docs/weights.md of tests/weights/public_encoders.json, those of rows and of
differences between sums and publications in docs/rows.md of TABLE and SUMS.
"""

import pathlib
import re
from typing import Any

from infoword_tf.adapters import ADAPTER
from infoword_tf.choices import RunChoices
from infoword_tf.objectives import SUMS, TABLE
from infoword_tf.settings import Setting
from infoword_tf.views import VIEWS
from tests import zoo
from tests.weights import public_encoders

PAGE = pathlib.Path(__file__).parent.parent / 'docs' / 'settings.md'
WEIGHTS = PAGE.with_name('weights.md')
ROWS = PAGE.with_name('rows.md')
# Encoders over whole texts, which the table of rows names together.
THREE = '`modern`, `transformer`, `disentangled`'
HEAD = """# Settings of rows and views

```
.venv/bin/python -m infoword_tf.train --objectives=dim --dim.critic=cosine \\
  --dim.temperature=0.05 --workdir=runs/cosine
```

The settings of a row are its flags, `--ROW.NAME`. Those of a view,
`--VIEW.NAME`, are set once for all rows that read it. A setting of a row that
is not trained, or of a view that no row reads, is refused. Those of
[adapters](finetune.md#adapters) are `--adapter.NAME`.
[rows.md](rows.md) says what the rows and views are. `--help=ROW` prints the
same. `make pages` makes this page.
"""


def values_of(setting: Setting) -> tuple[str, Any]:
    """Returns what a setting may be, and its default, in words."""
    if isinstance(setting.default, bool):
        return 'yes or no', 'yes' if setting.default else 'no'
    if setting.default == '':
        return 'text', 'none'
    if not setting.choices and setting.at_least is None:
        return 'a number', setting.default
    values = ', '.join(setting.choices) or f'{setting.at_least:g} or more'
    if setting.at_most is not None:
        values = f'{setting.at_least:g} to {setting.at_most:g}'
    return values, setting.default


def settings_page() -> str:
    """Returns the page: a section for each row and view with settings, and
    for adapters.

    A setting that an earlier section has word for word is named alone.
    """
    intros = {ADAPTER: ['Of a run with `--adapter=lora`.']}
    tables: dict[str, list[str]] = {}
    for row, entry in TABLE.items():
        if views := dict.fromkeys(entry.view_of.values()):
            listed = ', '.join(f'[`{view}`](#{view})' for view in views)
            intros[row] = [f'Reads a view with settings: {listed}.']
    first: dict[str, str] = {}
    repeated: dict[tuple[str, str], list[str]] = {}
    for flag, (known, rows) in RunChoices.setting_flags().items():
        if not known.decided_by:
            owner, _, name = flag.partition('.')
            if rows != [owner]:
                listed = ', '.join(f'`{row}`' for row in rows)
                intros[owner] = [f'A view, read by {listed}.']
            values = ' | '.join(map(str, values_of(known)))
            line = f'{values} | {known.help} |'
            earlier = first.setdefault(f'{name} | {line}', owner)
            if earlier == owner:
                tables.setdefault(owner, []).append(f'| `--{flag}` | {line}')
            else:
                repeated.setdefault((owner, earlier), []).append(f'`--{flag}`')
    for (owner, earlier), listed in repeated.items():
        intros.setdefault(owner, []).append(
            f'As of [`{earlier}`](#{earlier}): {", ".join(listed)}.'
        )
    lines = [HEAD]
    for owner in dict.fromkeys([*TABLE, *VIEWS, ADAPTER]):
        if owner in intros | tables:
            lines.append(f'## `{owner}`\n')
        if owner in intros:
            lines.append(f'{" ".join(intros[owner])}\n')
        if owner in tables:
            lines += [
                '| flag | values | default | what it does |',
                '|---|---|---|---|',
                *tables[owner],
                '',
            ]
    return '\n'.join(lines)


def weights_page() -> str:
    """Returns docs/weights.md with the table of encoders as it is now."""
    return re.sub(
        r'(?s)(<!-- encoders -->\n).*?(<!-- end -->)',
        lambda marks: f'{marks[1]}{public_encoders.table()}{marks[2]}',
        WEIGHTS.read_text(),
    )


def table_of_rows() -> str:
    """Returns the table of rows: views, candidates and encoders."""
    lines = [
        '| row | a | b | p(a, b) | encoders | candidates B~ |',
        '|---|---|---|---|---|---|',
    ]
    for name, row in TABLE.items():
        encoders = ', '.join(f'`{each}`' for each in zoo.encoders_of(name))
        encoders = encoders.replace(THREE, 'all three')
        lines.append(
            f'| `{name}` | {row.a} | {row.b} | {row.relation} | '
            f'{encoders} | {row.candidates} |'
        )
    return '\n'.join([*lines, ''])


def differences() -> str:
    """Returns the table of what sums do otherwise than their publications.

    Sums that several lines name stand in the first one.
    """
    sums: dict[tuple[str, str], list[str]] = {}
    for name, entry in SUMS.items():
        for difference in entry.differs:
            sums.setdefault(difference, []).append(f'`{name}`')
    lines, before = ['| sums | published | here |', '|---|---|---|'], ''
    for (published, here), names in sums.items():
        listed = ', '.join(names)
        first = f'| {listed} |' if listed != before else '| |'
        lines.append(f'{first} {published} | {here} |')
        before = listed
    return '\n'.join([*lines, ''])


def rows_page() -> str:
    """Returns docs/rows.md with both tables as they are now."""
    text = ROWS.read_text()
    for name, table in (
        ('rows', table_of_rows()), ('differences', differences())
    ):  # fmt: skip
        text = re.sub(
            rf'(?s)(<!-- {name} -->\n).*?(<!-- end -->)',
            lambda marks, table=table: f'{marks[1]}{table}{marks[2]}',
            text,
        )
    return text


def python_of(document: str | pathlib.Path) -> list[str]:
    """Returns the blocks of Python of a document, in order."""
    text = (PAGE.parents[1] / document).read_text()
    return re.findall(r'^```python\n(.*?)^```', text, re.M | re.S)


if __name__ == '__main__':
    ROWS.write_text(rows_page())
    PAGE.write_text(settings_page())
    WEIGHTS.write_text(weights_page())
