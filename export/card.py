"""MODEL_CARD.md of an export, from the files of its run alone.

The template is card.md, or litert.md for LiteRT, with facts in braces;
card.toml has words for names. A line with a fact that is missing or None is
omitted, and so is a section without lines. A fact with `:.0` prints nothing: it
only decides about its line.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from infoword_tf.choices import by_language, values_of
from infoword_tf.config import Config
from infoword_tf.critics import CRITICS
from infoword_tf.objectives import TABLE, decided
from infoword_tf.objectives.objective import Vector
from infoword_tf.text.layout import layout_of

from . import signatures as limits

_FILE = pathlib.Path(__file__)
# An absolute path at the beginning of a value or of a list entry; no URL.
_ABSOLUTE = re.compile(r'(?<![^:=,;\s])/(?!/)[^,;\n]*')


def render(
    config: Config,
    export: Mapping[str, Any],
    tokens: int | None,
    flags: str,
    metrics: Mapping[str, Any],
) -> str:
    """Writes the card.

    Args:
        config: content of config.json.
        export: facts of `bundle.describe`.
        tokens: number of tokens of the training text; None: unknown.
        flags: flags of the run, as a flagfile.
        metrics: the last values of the run; empty: there are none.
    """
    config = _as_typed(config, flags)
    facts = {
        'config': config,
        'export': export,
        **_model(config, export),
        **_task(config, metrics),
        **_teacher(config, export['weights'], metrics),
        **_signatures(export),
        **_training(config, tokens, flags, metrics),
        **_values(config, metrics),
    }
    return filled(_FILE.with_suffix('.md'), facts)


def lost(
    config: Config, weights: int, metrics: Mapping[str, Any], flags: str = ''
) -> str | None:
    """Renders the section about the teacher; None: the model is no student.

    Args:
        config, metrics, flags: arguments of `render`.
        weights: their number in the export.
    """
    facts = _teacher(_as_typed(config, flags), weights, metrics)
    sections = _sections(_FILE.with_suffix('.md'))
    return next(_filled(x, facts) for x in sections if 'Teacher' in x) or None


def portable(value: str) -> str:
    """Removes folders of the machine from a value that names files.

    Paths below the working directory become relative, of other absolute paths
    the last part stays.
    """

    def shortened(match: re.Match[str]) -> str:
        path, cwd = pathlib.PurePath(match[0]), pathlib.Path.cwd()
        if path != cwd and path.is_relative_to(cwd):
            return str(path.relative_to(cwd))
        return f'.../{path.name}'

    return _ABSOLUTE.sub(shortened, value)


def speed_line(
    export: Mapping[str, Any], report: Mapping[str, Any], processor: str
) -> str:
    """Formats the speed of a version, a line of a table.

    Args:
        export: facts of `bundle.describe`.
        report: the report of `runner.main`, with `speed`.
        processor: name of the processor, and how many there are.
    """
    one, many = (report['speed'][name] for name in ('one', 'many'))
    return (
        f'| {export["version"]} | {export["precision"]} | {processor} | '
        f'{one:.2f} ms | {many:,.0f} texts/s |'
    )


def with_speed(card: str, line: str) -> str:
    """Adds a line of speed to a card, in place of an earlier one."""
    title, of = f'\n{_words()["speed"]["title"]}\n', line.split('|')[1:4]
    card, _, known = card.partition(title)
    head = _words()['speed']['table'].strip()
    lines = known.strip().removeprefix(head).strip().splitlines()
    lines = [x for x in lines if x.split('|')[1:4] != of]
    rows = '\n'.join(sorted([*lines, line]))
    return f'{card.rstrip()}\n{title}\n{head}\n{rows}\n'


def shape_of(config: Config) -> str:
    """Formats the layers, width and heads of the encoder."""
    sizes, names = config.encoder.arguments, ('layers', 'width', 'heads')
    return ', '.join(f'{sizes[name]} {name}' for name in names if name in sizes)


def fine_tuned(config: Config) -> str:
    """Returns ' fine-tuned on TASK', or ''."""
    return f' fine-tuned on {config.task.name}' if config.task else ''


# ----------------------------------------------------------------- the template


def filled(template: pathlib.Path, facts: Mapping[str, Any]) -> str:
    """Renders the sections of a template that have facts."""
    sections = (_filled(x, facts) for x in _sections(template))
    return '\n\n'.join(filter(None, sections)) + '\n'


def _sections(template: pathlib.Path) -> list[str]:
    """Splits a template into title and sections."""
    return re.split(r'\n+(?=## )', template.read_text('utf-8').strip())


@functools.cache
def _words() -> dict[str, Any]:
    return tomllib.loads(_FILE.with_suffix('.toml').read_text('utf-8'))


def _filled(section: str, facts: Mapping[str, Any]) -> str:
    """Fills in a section; '' if no line has all facts."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    head, *lines = section.splitlines()
    texts = [head.format_map(known), '']
    for line in lines:
        with contextlib.suppress(KeyError):
            text = line.format_map(known)
            if text or texts[-1]:
                texts.append(text)
    return '\n'.join(texts).rstrip() if any(texts[1:]) else ''


def _if(true: Any) -> str | None:
    """Returns a fact that only decides about lines: '' or None."""
    return '' if true else None


# -------------------------------------------------------------------- the facts


def _as_typed(config: Config, flags: str) -> Config:
    """Names models as typed for a run.

    A config names the workdir that was read, which of a public folder lies in
    the cache.

    Args:
        config: content of config.json.
        flags: flags of the run, as a flagfile.
    """
    typed = dict(re.findall(r'^--(init|teacher)=(.*)$', flags, re.MULTILINE))
    init, teacher = config.run.get('init'), config.teacher
    if teacher and 'teacher' in typed:
        if init == teacher.name:  # a student that begins as its teacher
            typed.setdefault('init', typed['teacher'])
        teacher = dataclasses.replace(teacher, name=typed['teacher'])
    if init and 'init' in typed:
        config = config.replace(run={**config.run, 'init': typed['init']})
    return config.replace(teacher=teacher)


def _model(config: Config, export: Mapping[str, Any]) -> dict[str, Any]:
    """Collects facts about the model: the head and the limits of the card."""
    words, sts = _words(), export.get('sts')
    tokenizer, layout = config.tokenizer, layout_of(config.layout)
    rows = ' and '.join(
        f'`{row}` (weight {entry.weight:g}: {TABLE[row].relation})'
        for row, entry in config.rows.items()
    )
    source = config.run.get('source')
    origin = ('heads' if rows else 'weights') if source else 'rows'
    cases = words['cases'].get(tokenizer.kind, words['cases']['others'])
    dense = (
        f'{layer.width} ({getattr(layer, "activation", words["flow"])})'
        for layer in config.dense
    )
    prompts = (
        f'* `embed_{name}`{", and `embed`, too," * (name == config.prompt)} '
        f'puts {json.dumps(prompt) if prompt else "nothing"} before each text.'
        for name, prompt in config.prompts.items()
    )
    vectors: Iterator[Vector | None] = (
        decided(TABLE[row].vector, entry.settings)
        for row, entry in config.rows.items()
    )
    whole = any(vector and vector.priority for vector in vectors)
    return {
        'fine_tuned': fine_tuned(config),
        'encoder': words['encoders'].get(
            config.encoder.name, config.encoder.name
        ),
        'shape': shape_of(config),
        'case': cases[bool(tokenizer.lower_case)],
        'origin': words['origins'][origin].format(
            rows=rows, source=portable(source or '')
        ),
        'trained_in': words['trained_in'].format(config.precision)
        * (source is None),
        'sts': sts,
        'sts_here': sts and sts[export['precision']],
        'layout': layout.shown,
        'pooling': words['poolings'][config.pooling].format(
            layout.shown.split()[0 if layout.first else -1]
        ),
        'dense': ', '.join(dense) or None,
        'critic': CRITICS[config.critic].card or None,
        'dims': config.dims or None,
        'normalize': _if(config.normalize),
        'prompts': '\n'.join(prompts) or None,
        'unknown': words['unknown'][tokenizer.kind],
        'untried': 'other' if config.task else 'task, no other',
        'memory': _if(config.memory_length is not None),
        'averages': _if(not config.task and not whole),
    }


def _task(config: Config, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Collects facts about the task, with scores."""
    task = config.task
    if not task:
        return {}
    answer, settings = 'number', config.rows[task.row].settings
    if 'spans' in TABLE[task.row].answers:
        answer = 'spans'
    elif 'tags' in TABLE[task.row].answers:
        answer = 'tags'
    elif settings.get('texts') == 'choices':
        answer = 'choices'
    elif settings.get('multilabel'):
        answer = 'several'
    elif config.labels:
        answer = 'labels'
    facts = {
        'task': task,
        'train': portable(task.data['train']),
        'dev': portable(task.data['heldout']),
        'asked': _words()['asked'][answer].format(
            of='a text and another' if task.pairs else 'a text',
            labels=', '.join(f'`{label}`' for label in config.labels),
        ),
        'known': {
            'spans': 'place',
            'tags': 'label of a word',
            'several': 'label (the mean over all labels)',
        }.get(answer, 'label'),
    }
    prefix = f'heldout/{task.row}/'
    if f'{prefix}{task.metrics[0]}' in metrics:
        scores = (f'| {x} | {metrics[prefix + x]:.4f} |' for x in task.metrics)
        facts['scores'] = '\n'.join(scores)
        facts['nothing_learned'] = metrics.get('nothing_learned')
        mi, ceiling = (metrics.get(prefix + x) for x in ('mi', 'ceiling'))
        if mi is not None and ceiling:
            mi = max(mi, 0.0)  # a bound, too
            facts |= {'mi': mi, 'ceiling': ceiling, 'mi_share': mi / ceiling}
    return facts


def _teacher(
    config: Config, weights: int, metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """Collects facts about the teacher: the cost of distillation, and gains."""
    teacher = config.teacher
    if not teacher:
        return {}
    row = config.task.row if config.task else ''
    score = metrics.get(f'heldout/{row}/{teacher.metric}')
    gained = None
    if score is not None and teacher.score is not None:
        gained = score - teacher.score
    return {
        'teacher': teacher,
        'teacher_name': portable(teacher.name),
        'teacher_score': teacher.score,
        'layers': config.encoder.arguments.get('layers', 0),
        'weights': weights,
        'weights_share': weights / teacher.weights,
        'teacher_mb': 4e-6 * teacher.weights,
        'student_mb': 4e-6 * weights,
        'score': score,
        'gained': gained,
    }


def _signatures(export: Mapping[str, Any]) -> dict[str, Any]:
    """Collects facts about signatures: inputs, outputs, an example request."""
    words, signatures, sections = _words(), export['signatures'], []
    critics = [critic for critic in CRITICS.values() if critic.card_outputs]
    outputs_of = {x.signature: x.card_outputs for x in critics}
    outputs_of |= words['outputs_of']
    axes = {x.signature: x.card_axes for x in critics} | words['axes']
    for name, outputs in signatures.items():
        kind = 'embed' if 'embed' in name else name
        of = name.removesuffix('_pairs').removesuffix('_query')
        meanings = words['outputs'] | outputs_of.get(of, {})
        lines = []
        for output, (dtype, *shape) in outputs.items():
            letters = iter(axes.get(of, 'BT'))
            sizes = [str(next(letters) if n is None else n) for n in shape]
            meaning = meanings[output].format(
                masks=limits.MASKS, nowhere=limits.NOWHERE
            )
            lines.append(
                f'| `{output}` | [{", ".join(sizes)}] | {dtype} | {meaning} |'
            )
        sections.append(words['signature'].format(
            name=name,
            outputs='\n'.join(lines),
            request=json.dumps({'signature_name': name,
                                'instances': words['instances'][kind]}),
        ))  # fmt: skip
    return {
        'takes': ''.join(
            f'; `{name}` takes {more} too'
            for name in signatures
            if (more := words['besides'].get(name))
        ),
        'signatures': '\n'.join(sections).strip() or None,
        'masks': limits.MASKS if 'fill_mask' in signatures else None,
        'next_token': _if('next_token' in signatures),
    }


def _training(
    config: Config,
    tokens: int | None,
    flags: str,
    metrics: Mapping[str, Any],
) -> dict[str, Any]:
    """Collects facts about training: text, initial weights and flags."""
    words, run, lines = _words(), config.run, []
    corpora = by_language(run.get('corpus'))
    heldout = by_language(run.get('heldout'), corpora)
    for language, corpus in corpora.items():
        kind, of = corpus.split(':')[0], f' ({language})' if language else ''
        about = f' ({words["corpora"].get(kind)})' * (kind in words['corpora'])
        size = ''
        if tokens is not None and not language:
            size = f', {tokens:,} tokens to train on'
        lines.append(f'Text{of}: `{portable(corpus)}`{about}{size}.')
        held = words['heldout'].get(kind, words['heldout']['by_hash'])
        if language in heldout:
            held = f'`{portable(heldout[language])}`'
        lines.append(f'Held out{of}: {held}.')
    parallel = values_of(run.get('parallel'))
    seconds = metrics.get('seconds')
    return {
        'corpora': '\n'.join(lines) or None,
        'parallel': ', '.join(f'`{portable(x)}`' for x in parallel) or None,
        'init': portable(run.get('init') or '') or None,
        # Only a run counts updates; a fitted last layer has none.
        'updates': metrics.get('step'),
        'took': f'; the run took {seconds:,.0f} s' if seconds else '',
        'flags': portable(flags.strip()) or None,
    }


def _values(config: Config, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Collects MI, ceiling, loss and accuracy of rows on held-out text."""
    if not any(name.startswith('heldout/') for name in metrics):
        return {'unmeasured': ''}
    lines, unbounded = [], []
    for row, entry in config.rows.items():
        values = (
            metrics.get(f'heldout/{row}/{name}')
            for name in ('mi', 'ceiling', 'loss', 'accuracy')
        )
        shown = ('-' if v is None else f'{v:.3f}' for v in values)
        views = f'{TABLE[row].a}, {TABLE[row].b}'
        lines.append(f'| `{row}` | {views} | {" | ".join(shown)} |')
        binary = entry.settings.get('loss') == 'binary'
        if binary or not TABLE[row].objective.bounded:
            unbounded.append(f'`{row}`')
    return {
        'values': '\n'.join(lines) or None,
        'heldout': 'examples' if config.task else 'text of the corpus above',
        'unbounded': ' and '.join(unbounded) or None,
    }
