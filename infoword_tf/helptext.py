"""What --help prints: the flags that nearly everybody sets, and their groups.

Settings of a row are printed where --objectives names it, flags of an encoder
where the run has it, and the long text of a flag where somebody asks for it.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence

from absl import flags

from infoword_tf import encoders
from infoword_tf.choices import groups_of

WIDTH, COLUMN = 80, 28  # characters of a line, and where a short text begins
REPEAT = ';\n    repeat this option'  # absl's own words, behind ours
MORE = (
    '--help=NAME explains {}; --helpfull explains all. --flagfile=FILE reads '
    'flags from a file.'
)


def page(
    values: flags.FlagValues, kind: type | None, about: str, asked: bool | str
) -> str:
    """The help of a command.

    Args:
        values: all flags, with what was typed beside --help.
        kind: the choices of the command; None: its flags are its own.
        about: the docstring of its module.
        asked: True: the first screen; 'full': everything; or the name of a
            group, a row or a flag.

    Raises:
        ValueError: there is nothing of that name.
    """
    first, groups = groups_of(kind) if kind else ([], {})
    grouped = {name for names in groups.values() for name in names}
    rows: dict[str, list[str]] = {}
    others = []  # what absl brings along
    names = {values[name].name for name in values}  # none of one letter
    for name in sorted(names - grouped):
        row, dot, _ = name.partition('.')
        if dot:
            rows.setdefault(row, []).append(name)
        elif values.find_module_defining_flag(name).startswith('absl'):
            others.append(name)
        else:
            first.append(name)
    rest = {k: [x for x in v if x not in first] for k, v in groups.items()}
    if asked == 'full':
        parts = {'': first, **rest, **rows, 'absl': others}
        return '\n\n'.join([about.strip(), *_parts(values, parts)])
    if asked is not True:
        one = {asked: [asked]} if asked in values else {}
        if asked not in (known := one | rows | groups):
            raise ValueError(
                f'--help={asked}: there is no such flag, group or row; groups '
                f'are {", ".join(groups)}'
            )
        return _texts(values, known[asked])
    named = _rows_named(values)
    encoder = _encoder(values, named)
    unused = {x for x, of in encoders.FLAGS.items() if encoder not in of}
    lists = {
        group: ' '.join(f'--{x}' for x in names if x not in unused)
        for group, names in rest.items()
    }
    listed = [_columns(k, text, 13) for k, text in lists.items() if text]
    what = ['a group'] * bool(listed) + ['a row'] * bool(rows) + ['a flag']
    known = f'Rows with settings (--help=mlm): {" ".join(rows)}'
    return '\n\n'.join(filter(None, [
        _begin(about),
        '\n'.join(_columns(*_said(values[x], False)) for x in first),
        *_parts(values, {x: rows[x] for x in named if x in rows}),
        '\n'.join(['Groups of further flags:', *listed] if listed else []),
        _filled(known if rows else ''),
        _filled(MORE.format(', '.join(what))),
    ]))  # fmt: skip


def _begin(about: str) -> str:
    """The first paragraph of a docstring, and the first command."""
    paragraphs = about.strip().split('\n\n')
    lines = next((x for x in paragraphs if x.startswith('    ')), '')
    command = re.match(r'(?:.*\\\n)*.*', lines)
    return f'{paragraphs[0]}\n\n{command[0]}'.strip()


def _rows_named(values: flags.FlagValues) -> list[str]:
    """The rows of --objectives, where that was typed."""
    from infoword_tf.objectives import SUMS, TABLE, Sum

    if 'objectives' not in values or not values['objectives'].present:
        return []
    typed = values['objectives'].value
    parts = SUMS.get(typed, Sum(typed)).rows.split(',')
    rows = (part.partition(':')[0].strip() for part in parts)
    return [row for row in rows if row in TABLE]


def _encoder(values: flags.FlagValues, rows: Sequence[str]) -> str:
    """That of --encoder, or else the first one that all rows allow."""
    from infoword_tf.objectives import TABLE, decided

    if 'encoder' in values and values['encoder'].value:
        return values['encoder'].value
    allowed = []
    for entry in map(TABLE.get, rows):
        defaults = {k: x.default for k, x in entry.settings.items()}
        allowed.append(decided(entry.encoders, defaults))
    names = (x for x in encoders.ENCODERS if all(x in a for a in allowed))
    return next(names, '')


# ---------------------------------------------------------------------- layout


def _filled(text: str, first: str = '', others: str = '') -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _columns(left: str, text: str, column: int = COLUMN) -> str:
    """A name and its text beside it, or below where the name is long."""
    indent, left = ' ' * column, f'  {left}'
    if len(left) + 2 > column:
        return f'{left}\n{_filled(text, indent, indent)}'
    return _filled(text, left.ljust(column), indent)


def _parts(
    values: flags.FlagValues, parts: dict[str, Sequence[str]]
) -> Iterator[str]:
    """By name of a group, its flags in full."""
    for name, names in parts.items():
        if names:
            yield f'{name}:\n{_texts(values, names)}'.lstrip(':\n')


def _texts(values: flags.FlagValues, names: Sequence[str]) -> str:
    """Flags in full."""
    indent = ' ' * 6
    return '\n'.join(
        f'  {left}\n{_filled(text, indent, indent)}'
        for left, text in (_said(values[name], True) for name in names)
    )


def _said(flag: flags.Flag, whole: bool) -> tuple[str, str]:
    """--NAME=DEFAULT or --NAME=A|B, and what there is to say of it."""
    choices = getattr(flag.parser, 'enum_values', None)
    default, text = flag.default, flag.help.partition(REPEAT)[0]
    if choices:  # absl has them in the text
        text = text.partition('>: ')[2]
    if isinstance(default, list):
        default = ','.join(default)
    if flag.boolean:
        left = f'--[no]{flag.name}'
    else:
        value = '|'.join(choices) if choices else default
        left = f'--{flag.name}={"..." if value in (None, "") else value}'
    if not whole:  # the first sentence
        text = re.split(r'(?<=\.) |;', text)[0].removesuffix('.') + '.'
    if choices and default or flag.boolean and default is True:
        text += f' Default: {str(default).lower()}.'
    if whole and flag.parser.syntactic_help:
        text += f' ({flag.parser.syntactic_help})'
    return left, text
