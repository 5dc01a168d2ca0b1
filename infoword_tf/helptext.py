"""The text of --help: the usual flags, and the groups of the others.

Settings of a row and of its views are printed if --objectives names the row,
flags of an encoder if the run has it, and the whole text of a flag by
--help=FLAG.
"""

import itertools
import re
import textwrap
from collections.abc import Iterable, Mapping

from absl import flags

from infoword_tf import errors
from infoword_tf.choices import flags_of, groups_of
from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.objectives import SUMS, TABLE, Sum

HUB = (
    'A model may be hf://OWNER/NAME, and a file hf://datasets/OWNER/NAME/PATH.'
)
REPEAT = ';\n    repeat this option'  # absl appends this to our text


def page(
    values: flags.FlagValues, kind: type | None, about: str, topic: str
) -> str:
    """Writes the help of a command.

    Args:
        values: all flags, with the values that were typed beside --help.
        kind: dataclass of the command's choices; None: it defines flags.
        about: the docstring of its module.
        topic: '': the first screen; 'full': everything; or the name of a
            group, a row, a view or a flag.

    Raises:
        ValueError: there is nothing of that name.
    """
    known = [
        flag.name
        for module, defined in values.flags_by_module_dict().items()
        if not module.startswith('absl')
        for flag in defined
    ]
    first, groups = groups_of(kind) if kind else (known, {})
    owners: dict[str, list[str]] = {}  # rows, and views
    for name in sorted(name for name in known if '.' in name):
        owners.setdefault(name.partition('.')[0], []).append(name)

    def of_rows(rows: Iterable[str]) -> dict[str, list[str]]:
        read = (x for row in rows for x in (row, *TABLE[row].view_of.values()))
        return {x: owners[x] for x in read if x in owners}

    def whole(names: Iterable[str]) -> str:
        return '\n'.join(_entry(*_described(values[x], True), 6) for x in names)

    others = {k: [x for x in v if x not in first] for k, v in groups.items()}
    if topic == 'full':
        named = (others | owners).items()
        more = (f'{k}:\n{whole(names)}' for k, names in named if names)
        return '\n\n'.join([about.strip(), whole(first), *more])
    if topic:
        single = {topic: [topic]} if topic in known else {}
        of_row = of_rows({topic} & TABLE.keys())
        names = list(itertools.chain(*of_row.values()))
        names = names or groups.get(topic, [])
        if names := names or single.get(topic, []) + owners.get(topic, []):
            return whole(names)
        raise errors.InputError(
            'unknown_help',
            f'--help={topic}: there is no such flag, group, row or view; '
            f'groups are {", ".join(groups)}',
        )
    used, encoder = _used(values)
    rows = [row for row in sorted(TABLE) if of_rows([row])]
    listed = []
    for group, names in others.items():
        names = [x for x in names if x not in FLAGS or encoder in FLAGS[x]]
        if names:
            listed += [_entry(group, ' '.join(f'--{x}' for x in names), 13)]
    models = kind and any(x.model for _, x in flags_of(kind).values())
    command = re.search(r'^    \S(?:.*\\\n)*.*', about, re.M)
    kinds = ['a group'] * bool(listed)
    kinds += ['a row', 'a view'] * bool(owners) + ['a flag']
    sections = [
        about.strip().split('\n\n')[0],
        command[0] if command else '',
        '\n'.join(
            _entry(*_described(values[name], False), 28) for name in first
        ),
        *(f'{k}:\n{whole(names)}' for k, names in of_rows(used).items()),
        '\n'.join(['Groups of further flags:', *listed] if listed else []),
        _filled(f'Rows with settings: {" ".join(rows)}' if rows else ''),
        f'{HUB}\n' * bool(models)
        + _filled(
            f'--help=NAME explains {", ".join(kinds)}; --helpfull explains '
            'all. --flagfile=FILE reads flags from a file.'
        ),
    ]
    return '\n\n'.join(filter(None, sections))


def _used(values: Mapping[str, flags.Flag]) -> tuple[list[str], str]:
    """Returns the rows of a typed --objectives, and the encoder of the run."""
    chosen = {
        name: values[name].value
        for name in ('objectives', 'encoder')
        if name in values and values[name].present
    }
    typed = chosen.get('objectives') or ''
    named = SUMS.get(typed, Sum(typed))
    names = [term.partition(':')[0].strip() for term in named.rows.split(',')]
    rows = [name for name in names if name in TABLE]
    allowed = []
    for entry in map(TABLE.__getitem__, rows):
        defaults = {k: known.default for k, known in entry.settings.items()}
        allowed.append(entry.encoders(defaults))
    # Without rows: the encoder of most public models.
    scratch = rows and typed not in SUMS
    first = [] if scratch else [named.encoder]
    fit = (x for x in [*first, *ENCODERS] if all(x in of for of in allowed))
    return rows, chosen.get('encoder') or next(fit, '')


def _described(flag: flags.Flag, whole: bool) -> tuple[str, str]:
    """Formats --NAME=DEFAULT or --NAME=A|B; returns that and the help text."""
    choices = getattr(flag.parser, 'enum_values', ())
    default, text = flag.default, flag.help.partition(REPEAT)[0]
    if choices:  # absl repeats the choices before the text
        text = text.partition('>: ')[2]
    if isinstance(default, list):
        default = ','.join(default)
    value = '|'.join(choices) or ('...' if default in (None, '') else default)
    left = f'--[no]{flag.name}' if flag.boolean else f'--{flag.name}={value}'
    if not whole:  # the first sentence
        text = re.split(r'(?<=\.) |;', text)[0].removesuffix('.') + '.'
    if choices and default or flag.boolean and default is True:
        text += f' Default: {str(default).lower()}.'
    if whole and flag.parser.syntactic_help:
        text += f' ({flag.parser.syntactic_help})'
    return left, text


def _entry(left: str, text: str, column: int) -> str:
    """Formats a name and a text, side by side unless the name is long."""
    # Many choices go on in the next line.
    left = _filled(left.replace('|', '| '), '  ', ' ' * 6).replace('| ', '|')
    indent = ' ' * column
    if len(left) + 2 > column:
        return f'{left}\n{_filled(text, indent, indent)}'
    return _filled(text, left.ljust(column), indent)


def _filled(text: str, first: str = '', others: str = '') -> str:
    return textwrap.fill(
        text, 80, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
