"""docs/settings.md, made of the table of rows: python -m tests.pages"""

import pathlib
from typing import Any

from infoword_tf.objectives import TABLE
from infoword_tf.settings import Setting

PAGE = pathlib.Path(__file__).parent.parent / 'docs' / 'settings.md'
HEAD = """# Settings of rows

```
.venv/bin/python -m infoword_tf.train --objectives=dim --dim.critic=cosine \\
  --dim.temperature=0.05 --workdir=runs/cosine
```

The settings of a row are its flags, `--ROW.NAME`; one of a row that is not
trained is refused. [rows.md](rows.md) says what the rows are. `make pages`
makes this page.
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
    """Returns the page: a table for each row that has settings."""
    lines = [HEAD]
    for row in TABLE:
        settings = {
            name: setting
            for name, setting in TABLE[row].settings.items()
            if not setting.decided_by
        }
        if settings:
            lines += [
                f'## `{row}`\n',
                '| flag | values | default | what it does |',
                '|---|---|---|---|',
                *(
                    f'| `--{row}.{name}` | {" | ".join(map(str, values_of(x)))}'
                    f' | {x.help} |'
                    for name, x in settings.items()
                ),
                '',
            ]
    return '\n'.join(lines)


if __name__ == '__main__':
    PAGE.write_text(settings_page())
