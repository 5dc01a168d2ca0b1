"""MODEL_CARD.md of an export, from what its run wrote down and nothing else."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from export import signatures as limits
from infoword_tf.choices import by_language, given_several
from infoword_tf.config import Config, FlowConfig
from infoword_tf.objectives import TABLE, decided
from infoword_tf.text.layout import LAYOUTS

_CORPORA = {
    'pydocs': 'the English docstrings of a Python interpreter and of the '
    'packages beside it',
    'text': 'text files, one sentence or paragraph a line',
    'lines': 'text files, read as one text whose line ends count',
    'tfds': 'of tensorflow-datasets',
    'store': 'prepared text',
}
_ENCODERS = {
    'transformer': 'transformer encoder',
    'modern': 'ModernBERT encoder',
    'relative': 'relative-position transformer encoder',
    'lookup': 'table of embeddings',
    'rnn': 'recurrent encoder',
    'elmo': 'recurrent encoder of both directions over characters',
}
_POOLINGS = {
    'mean': 'the mean of the states of all tokens, special pieces included',
    'weighted': 'the mean of all states with learned weights',
    'words': 'the mean of all states with learned weights, and beside it that '
    'of word vectors, rare ones first',
    'first_last': 'the mean of the states of the first and the last layer',
    'mix': 'the mean of the states of all layers',
    'last': 'the state of its last token',
    'max': 'the maximum of the states of all tokens, number by number',
    'by_position': 'the mean of all states with weights 1, 2, 3, ...',
}
_UNKNOWN = {
    'wordpiece': (
        '* A word of more than 100 characters, or of some that the '
        'vocabulary lacks, is [UNK].',
    ),
    'bytes': (
        '* A token may be a part of a character; its bytes are then those of '
        'the whole character.',
    ),
    'characters': (
        '* A character that the vocabulary lacks is its unknown piece.',
    ),
    'words': (
        '* What the vocabulary lacks between two spaces is [UNK]: punctuation '
        'stands apart only where the text has it so.',
    ),
    'sentencepiece': (
        '* Characters that the vocabulary lacks are its unknown piece, '
        'neighbours together.',
        '* Spaces before a word are no part of its bytes. Where `starts` is '
        '`ends`, a token has no bytes of its own: a mark of a word alone '
        '(U+2581), or a character that is several tokens, whose last has them.',
    ),
}
_EXAMPLES = {
    'embed': ['strings in, vectors out', 'a second text'],
    'tokens': ['strings in, vectors out'],
    'fill_mask': ['read a [MASK] file'],
    'next_token': ['returns a list of'],
    'classify': ['a text to classify'],
    'classify_pairs': [{'texts': 'a question', 'pairs': 'a passage'}],
    'regress': ['a text to score'],
    'regress_pairs': [{'texts': 'a sentence', 'pairs': 'another'}],
    'choose': [{'texts': 'a question', 'choices': ['one answer', 'another']}],
    'answer': [{'texts': 'a question', 'pairs': 'a context of any length'}],
}
_BESIDES = {  # what is asked for more than texts
    'classify_pairs': 'as many `pairs`',
    'regress_pairs': 'as many `pairs`',
    'choose': '`choices` [B, K]',
    'answer': 'the contexts of these questions as `pairs`',
}
_MEANINGS = {
    'embeddings': 'one vector for each text',
    'states': 'one vector for each token, zeros beyond `lengths`',
    'starts': 'the first byte of each token in the text that was sent; '
    f'{limits.NOWHERE} for special pieces and padding',
    'ends': 'the byte after its last, alike',
    'ids': 'tokens by number, with special pieces and padding',
    'lengths': 'how many tokens each text has, with special pieces',
    'tokens': 'the likeliest pieces for each [MASK], best first; empty '
    'strings where there is no mask',
    'scores': 'their log-probabilities (nats); 0 where there is no mask',
    'label': 'the likeliest class',
    'labels': 'all classes, in the order of their probabilities below',
    'probabilities': 'of each class; of one class alone the logistic function '
    'of its score',
    'score': 'the number',
    'choice': 'the likeliest choice, from 0',
    'count': f'masks in each text; the first {limits.MASKS} are answered',
}
_ANSWER = {
    'text': 'the best answer, as its context has it; empty: there is none',
    'score': 'nats, of its first place and its last',
    'begin': 'its first byte in the context; -1: there is none',
    'end': 'the byte after its last, alike',
    'texts': 'the best answers, best first; empty strings beyond them',
    'scores': 'theirs; -1e30 beyond them',
    'probabilities': 'among these, and no answer where that may be',
    'begins': 'their first bytes',
    'ends': 'the bytes after their last',
    'null_odds': 'how much more no answer scores than the best one, nats; '
    'above the threshold of config.json `text` is empty',
}
_OWN = {  # of a signature alone, without `_pairs`
    'answer': _ANSWER,
    'choose': {'probabilities': 'of each choice'},
    'classify': {'scores': 'of each class, before they become probabilities'},
    'next_token': {
        'tokens': 'the likeliest next pieces, best first; the end of a '
        'document is one',
        'scores': 'their log-probabilities (nats)',
    },
}
# A path from the root, where a value or one of several begins; no URL.
_ABSOLUTE = re.compile(r'(?<![^:=,;\s])/(?!/)[^,;\n]*')


def render(
    config: Config,
    export: Mapping[str, Any],
    pieces: int | None,
    flags: str,
    metrics: Mapping[str, Any],
) -> str:
    """The card.

    Args:
        config: of the run.
        export: what `bundle.describe` gives.
        pieces: of the text that it was trained on; None: not known.
        flags: of the run, as a flagfile.
        metrics: the last values of the run; empty where it has left none.
    """
    parts = [
        _title(config, export),
        *([_task(config, metrics)] if config.task else []),
        *lost(config, export['weights'], metrics),
        _use(config, export),
        _training(config, pieces, flags, metrics),
        _values(config, metrics),
        _limits(config),
    ]
    return '\n\n'.join(parts) + '\n'


def portable(value: str) -> str:
    """A value that names files, without the folders of this machine.

    What is below the working directory is named from there on, of other
    absolute paths the last part alone.
    """

    def shortened(found: re.Match[str]) -> str:
        path = pathlib.PurePath(found[0])
        here = pathlib.Path.cwd()
        if path != here and path.is_relative_to(here):
            return str(path.relative_to(here))
        return f'.../{path.name}'

    return _ABSOLUTE.sub(shortened, value)


def _title(config: Config, export: Mapping[str, Any]) -> str:
    encoder = _ENCODERS.get(config.encoder.name, config.encoder.name)
    rows = ' and '.join(
        f'`{row}` (weight {entry.weight:g}: {TABLE[row].relation})'
        for row, entry in config.rows.items()
    )
    lower_case = config.tokenizer.lower_case
    if config.tokenizer.kind != 'wordpiece':
        case = 'lower-cased' if lower_case else 'with case'
    elif lower_case:
        case = 'lower-cased and without accents'
    else:
        case = 'with case and accents'
    origin = f'Trained by {rows}.'
    if source := config.run.get('source'):
        origin = f'Converted from the weights `{portable(source)}`' + (
            f', with the heads {rows}.' if rows else ', the encoder alone.'
        )
    layout = LAYOUTS[config.layout]
    one = layout.shown.split()[0 if layout.first else -1]
    poolings = {**_POOLINGS, 'cls': f'the state of its {one}'}
    lines = [
        f'# Text encoder{fine_tuned(config)}, version {export["version"]}',
        '',
        f'A {encoder} ({shape_of(config)}) with a {config.tokenizer.kind} '
        f'vocabulary of {config.encoder.arguments["vocab_size"]:,} pieces, '
        f'{case}. {origin}',
        '',
        f'* Computes in {export["precision"]} and returns float32; it was '
        f'trained in {config.precision}.'
        if config.run.get('source') is None
        else f'* Computes in {export["precision"]} and returns float32.',
        *_measured(export),
        f'* {export["weights"]:,} weights. A text is read as '
        f'`{layout.shown}`, and cut at {config.max_length} tokens.',
        f"* A text's vector is {poolings[config.pooling]}; compare "
        f'vectors by {config.similarity}.',
        *_postprocessing(config),
        f'* Written by TensorFlow {export["tensorflow"]}, for TensorFlow '
        'Serving 2.12 to 2.20, or TensorFlow with tensorflow_text imported.',
    ]
    return '\n'.join(lines)


def shape_of(config: Config) -> str:
    """Layers, width and heads of the encoder, those that it has."""
    sizes, names = config.encoder.arguments, ('layers', 'width', 'heads')
    return ', '.join(f'{sizes[name]} {name}' for name in names if name in sizes)


def fine_tuned(config: Config) -> str:
    """On what, after a noun; or nothing."""
    return f' fine-tuned on {config.task.name}' if config.task else ''


def _task(config: Config, metrics: Mapping[str, Any]) -> str:
    """The task, its training data and its scores."""
    task = config.task
    chosen = config.rows[task.row].settings.get('texts') == 'choices'
    of = 'a text and another' if task.pairs else 'a text'
    asked = f'`{task.name}`: a number for {of}.'
    if config.labels:
        names = ', '.join(f'`{label}`' for label in config.labels)
        asked = f'`{task.name}`: which label {of} has, of {names}.'
    spans = 'spans' in TABLE[task.row].answers
    if spans:
        asked = f'`{task.name}`: which part of a context answers a question.'
    elif chosen:
        asked = f'`{task.name}`: which of several second texts goes with one.'
    first = task.metrics[0]
    lines = [
        '## Task',
        '',
        asked,
        f'Trained on {task.sizes["train"]:,} examples '
        f'(`{portable(task.data["train"])}`). The scores below are on '
        f'{task.sizes["heldout"]:,} others '
        f'(`{portable(task.data["heldout"])}`), by '
        f'whose {first} these weights were chosen: of new ones expect '
        'slightly less.',
    ]
    prefix = f'heldout/{task.row}/'
    if f'{prefix}{first}' not in metrics:
        return '\n'.join(lines)
    lines += ['', '| metric | held out |', '|---|---|']
    lines += [
        f'| {name} | {metrics[prefix + name]:.4f} |' for name in task.metrics
    ]
    mi, ceiling = (metrics.get(prefix + name) for name in ('mi', 'ceiling'))
    if mi is not None and ceiling:
        mi = max(mi, 0.0)  # which is a bound, too
        what = 'place' if spans else 'label'
        lines += [
            '',
            f'The mutual information of text and {what} that it captures is at '
            f'least {mi:.3f} nats, of {ceiling:.3f} that are possible '
            f'({mi / ceiling:.0%}).',
        ]
    return '\n'.join(lines)


def lost(config: Config, weights: int, metrics: Mapping[str, Any]) -> list[str]:
    """A section: whose student it is, what that saved and cost; or none.

    `weights`: how many it computes with.
    """
    teacher = config.teacher
    if not teacher:
        return []
    layers = config.encoder.arguments.get('layers', 0)
    lines = [
        '## Teacher',
        '',
        f'A student of `{portable(teacher.name)}` (weights {teacher.digest}).',
        '',
        '| | teacher | student | |',
        '|---|---|---|---|',
        f'| layers | {teacher.layers} | {layers} | |',
        f'| weights | {teacher.weights:,} | {weights:,} | '
        f'{weights / teacher.weights:.0%} |',
        f'| MB in float32 | {4e-6 * teacher.weights:.1f} | '
        f'{4e-6 * weights:.1f} | |',
    ]
    row = config.task.row if config.task else ''
    score = metrics.get(f'heldout/{row}/{teacher.metric}')
    if score is not None and teacher.score is not None:
        lines.append(
            f'| {teacher.metric}, held out | {teacher.score:.4f} | '
            f'{score:.4f} | {score - teacher.score:+.4f} |'
        )
    return ['\n'.join(lines)]


def _measured(export: Mapping[str, Any]) -> list[str]:
    """What less precision costs, where that was measured."""
    if not (sts := export.get('sts')):
        return []
    return [
        f'* Spearman x 100 on `{sts["data"]}` ({sts["pairs"]:,} pairs): '
        f'{sts[export["precision"]]:.2f}, {sts["float32"]:.2f} in float32.'
    ]


def _postprocessing(config: Config) -> list[str]:
    """What else happens to a text and to its vector."""
    lines = []
    if config.dense:
        widths = ', '.join(
            f'{layer.width} (an invertible network)'
            if isinstance(layer, FlowConfig)
            else f'{layer.width} ({layer.activation})'
            for layer in config.dense
        )
        lines.append(f'* Dense layers follow, of widths {widths}.')
    if config.dims:
        lines.append(f'* Of a vector its first {config.dims} numbers count.')
    if config.normalize:
        lines.append('* Vectors have length 1.')
    for name, prompt in config.prompts.items():
        always = ', and `embed`, too,' if name == config.prompt else ''
        lines.append(
            f'* `embed_{name}`{always} puts {json.dumps(prompt)} before each '
            'text.'
        )
    return lines


def _use(config: Config, export: Mapping[str, Any]) -> str:
    lines = [
        '## Signatures',
        '',
        'Each takes `texts` [B], UTF-8 strings'
        + ''.join(
            f'; `{name}` takes {_BESIDES[name]} too'
            for name in export['signatures']
            if name in _BESIDES
        )
        + f'; `serving_default` is `{export["default"]}`. An empty batch gives '
        'empty outputs.',
    ]
    for name, outputs in export['signatures'].items():
        lines += ['', f'### `{name}`', '', '| output | shape | | |',
                  '|---|---|---|---|']
        for output, (dtype, *shape) in outputs.items():
            letters = iter('BK' if name == 'choose' else 'BT')
            sizes = [str(next(letters) if n is None else n) for n in shape]
            own = _OWN.get(name.removesuffix('_pairs'), {})
            lines.append(
                f'| `{output}` | [{", ".join(sizes)}] | {dtype} | '
                f'{own.get(output) or _MEANINGS[output]} |'
            )
        examples = _EXAMPLES['embed' if 'embed' in name else name]
        request = {'signature_name': name, 'instances': examples}
        lines += ['', '```json', json.dumps(request), '```']
    for name, does in (
        ('fill_mask', f'keeps its first {limits.MASKS} masks and the tokens '
         'nearest to them, in their order'),
        ('next_token', 'reads the end'),
    ):  # fmt: skip
        if name in export['signatures']:
            long = f'Of a text longer than {config.max_length} tokens'
            lines += ['', f'{long} `{name}` {does}.']
    return '\n'.join(lines)


def _training(
    config: Config,
    pieces: int | None,
    flags: str,
    metrics: Mapping[str, Any],
) -> str:
    run = config.run
    lines = ['## Training', '']
    corpora = by_language(run.get('corpus'))
    heldout = by_language(run.get('heldout'), corpora)
    for language, corpus in corpora.items():
        of = f' ({language})' if language else ''
        about = _CORPORA.get(corpus.split(':')[0])
        lines.append(
            f'Text{of}: `{portable(corpus)}`'
            + (f' ({about})' if about else '')
            + ('.' if pieces is None or language else
               f', {pieces:,} pieces to train on.')
        )  # fmt: skip
        held = 'documents chosen by the hash of their text'
        if corpus.startswith('tfds:'):
            held = f'its test or validation split, where it has none {held}'
        if corpus.startswith('store:'):
            held = 'what was held out when it was prepared'
        if language in heldout:
            held = f'`{portable(heldout[language])}`'
        lines.append(f'Held out{of}: {held}.')
    if run.get('parallel'):
        some = ', '.join(
            f'`{portable(x)}`' for x in given_several(run['parallel'])
        )
        lines.append(f'Translations: {some}.')
    if run.get('init'):
        lines.append(f'Started from the weights of `{portable(run["init"])}`.')
    if 'step' in metrics:  # of a run, not of what was fitted to its vectors
        seconds = metrics.get('seconds')
        took = f'; the run took {seconds:,.0f} s' if seconds else ''
        lines.append(f'{metrics["step"]:,} updates{took}.')
    if flags.strip():
        flags = portable(flags.strip())
        lines += ['', 'The flags of the run:', '', '```', flags, '```']
    return '\n'.join(lines)


def _values(config: Config, metrics: Mapping[str, Any]) -> str:
    lines = ['## Held-out values', '']
    if not any(name.startswith('heldout/') for name in metrics):
        return '\n'.join([*lines, 'The run has left none.'])
    lines += [
        'A lower bound on the mutual information of the two views, in nats, '
        'and the highest value that its candidates allow. On held-out '
        + ('examples.' if config.task else 'text of the corpus above.'),
        '',
        '| row | a, b | MI | ceiling | loss | accuracy |',
        '|---|---|---|---|---|---|',
    ]
    for row in config.rows:
        values = [
            metrics.get(f'heldout/{row}/{name}')
            for name in ('mi', 'ceiling', 'loss', 'accuracy')
        ]
        shown = ['-' if v is None else f'{v:.3f}' for v in values]
        lines.append(
            f'| `{row}` | {TABLE[row].a}, {TABLE[row].b} | '
            f'{" | ".join(shown)} |'
        )
    loose = [
        f'`{row}`'
        for row in config.rows
        if not TABLE[row].objective.bounded
        or config.rows[row].settings.get('loss') == 'binary'
    ]
    if loose:
        lines += [
            '',
            f'The loss of {" and ".join(loose)} bounds no mutual information.',
        ]
    return '\n'.join(lines)


def _limits(config: Config) -> str:
    lines = [
        '## Limits',
        '',
        f'* What comes after token {config.max_length} of a text is not '
        'read.',
        *_UNKNOWN[config.tokenizer.kind],
        '* A word with bytes that are no UTF-8 is unknown.',
        '* It repeats what its training text says, true or not, kind or not; '
        'the run has not looked into that.',
        '* The values above are all that the run has measured: no '
        + ('' if config.task else 'task, no ')
        + 'other text.',
    ]
    if config.memory_length is not None:
        lines.append(
            '* Every text is read alone: the memory of the training is empty.'
        )
    vectors = (
        decided(TABLE[row].vector, entry.settings)
        for row, entry in config.rows.items()
    )
    if config.task:
        lines.append(
            '* Fine-tuning has changed its vectors, and nobody has measured '
            'what they are worth since.'
        )
    elif not any(vector and vector.priority for vector in vectors):
        lines.append(
            '* No row of this run compares whole texts: their vectors are '
            'averages of what was learned for pieces.'
        )
    return '\n'.join(lines)
