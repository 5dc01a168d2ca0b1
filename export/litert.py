"""A file for LiteRT (TensorFlow Lite) of a trained workdir.

    python -m export.litert --init=runs/phone --output=models/phone
    python models/phone/model.py "strings in"

`models/phone/` needs nothing but numpy and ai-edge-litert. A fine-tuned workdir
gives classes or numbers of texts or of pairs, any other vectors. MODEL_CARD.md
says what --precision costs: on texts of all kinds, on --dev, on --sts.

    model.tflite      the graphs and their weights: ids in
    model.json        facts for model.py
    vocab.txt, characters.json   for its tokenizer
    model.py          export/serving/model.py: strings in, which it tokenizes
                      as the workdir does
    MODEL_CARD.md     sizes, and what the precision costs

A graph has one text, or two, and one length, because XNNPACK takes the whole of
a graph only if all shapes are known. Graphs of several lengths share weights.
In int8 the kernels of dense layers and the embeddings are 8 bits with a scale
for each column, and states are quantized vector by vector as they are
multiplied (dynamic range); sums stay float32.

Glossary of shapes: C classes, n texts.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import infoword_tf
from infoword_tf import commands, errors, files
from infoword_tf.choices import again, flag
from infoword_tf.config import Config
from infoword_tf.critics import CRITICS
from infoword_tf.data import glue_layout, labelling, tables
from infoword_tf.data.labelling import ColumnChoices
from infoword_tf.evaluation import measures
from infoword_tf.evaluation import sts as task
from infoword_tf.resolve import answering

from .savedmodel import SavedModelChoices
from .serving import model as standalone

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

PRECISIONS = ('int8', 'float16', 'float32')
ENCODERS = ('transformer', 'lookup')
# No small program without TensorFlow gives the ids of other tokenizers: the
# package sentencepiece decides otherwise between equal scores.
TOKENIZER = 'wordpiece'
SHORTEST = 16  # tokens of the shortest graph; the next has twice as many
HEADS = {'classes': 'classify', 'numbers': 'regress'}  # by answer of a row
# Measures of a signature's answers on the card.
ALIKE = {
    'cosine': 'cosine {:.4f} or more',
    'same': '{:.1%} have the same likeliest class',
    'same_labels': '{:.1%} have the same labels',
}
# A function of a graph, the width of its answer, and the number of its texts.
Signature = tuple[Callable[..., Any], int, int]
_TEXTS = 200  # on which the card compares, and nasty ones


@dataclasses.dataclass(frozen=True)
class LitertChoices:
    """The choices of the command."""

    init: str = again(SavedModelChoices, 'init', '')
    output: str = flag('', 'A folder that is not there yet.')
    seq_len: int | None = flag(
        None, 'Maximum length of a text in tokens; by default that of '
        'training.', at_least=4)
    precision: str = flag(
        'int8', 'Precision of the weights; int8 also multiplies in 8 bits.',
        choices=PRECISIONS)
    dev: str | None = flag(
        None, 'A labelled table, see tasks.classify; the model card then has '
        'the scores on it.')
    text: str = again(ColumnChoices, 'text', 'text')
    pair: str | None = again(ColumnChoices, 'pair', None)
    label: str = again(ColumnChoices, 'label', 'label')
    label_columns: tuple[str, ...] = again(ColumnChoices, 'label_columns', ())
    sts: str | None = flag(
        None, 'The same for vectors: a file of STS-B, see tasks.sts.')


def check(config: Config, init: Any, output: pathlib.Path) -> None:
    """Raises, before TensorFlow starts, if a workdir cannot be converted.

    Raises:
        FileExistsError: `output` exists.
        ValueError: LiteRT gets no such encoder, tokenizer or row.
    """
    if output.exists():
        raise FileExistsError(
            f'{output} is there already, and phones may have it; name '
            'another --output'
        )
    examples, kind = config.rows, config.tokenizer.kind
    others = answering(('spans', 'tags'), examples) + [
        f'{row} of choices'
        for row in answering(HEADS, examples)
        if examples[row].settings.get('texts') == 'choices'
    ]
    lstms = [r for r, entry in examples.items() if entry.settings.get('bilstm')]
    takes_all = 'export.savedmodel takes all'
    for wrong, error in (
        (config.encoder.name not in ENCODERS, errors.InputError(
            'litert_lacks_encoder',
            f'--init={init} has a {config.encoder.name} encoder, and LiteRT '
            f'gets {" or ".join(ENCODERS)}; {takes_all}')),
        (kind != TOKENIZER, errors.InputError(
            'litert_lacks_tokenizer',
            f'--init={init} has a tokenizer of the kind {kind}, and beside a '
            f'file of LiteRT goes {TOKENIZER}; {takes_all}')),
        (others, errors.InputError(
            'litert_lacks_row',
            f'--init={init} was taught the row {"".join(others[:1])}, which '
            'gives a text neither a vector nor classes; export.savedmodel '
            'serves it')),
        (not (CRITICS[config.critic].has_vector
              or answering(HEADS, examples)),
         errors.InputError(
            'litert_lacks_critic',
            f'--init={init} compares by the critic {config.critic}, and a file '
            f'of LiteRT computes vectors and classes; {takes_all}')),
        (lstms, errors.InputError(
            'litert_lacks_lstm',
            f'--init={init} pools with LSTMs (--{"".join(lstms[:1])}.bilstm), '
            f'which are not exported to LiteRT; {takes_all}')),
    ):  # fmt: skip
        if wrong:
            raise error


def lengths_of(longest: int) -> list[int]:
    """Returns the lengths of graphs: 16, 32, 64, ..., `longest`."""
    doubled = (SHORTEST << i for i in itertools.count())
    return [*itertools.takewhile(lambda n: n < longest, doubled), longest]


def signatures_of(loaded: 'Loaded') -> dict[str, Signature]:
    """Returns the signatures of a workdir.

    Returns:
        By name a function of ids [1, T], length [1] and, of two texts, second
        [1]; the width of its answer; and the number of its texts.
    """
    signatures: dict[str, Signature] = {}
    for answer, name in HEADS.items():
        for row in loaded.rows_that(answer):
            width = loaded.model.objectives[row].columns
            compute = functools.partial(loaded.classes.class_scores, row=row)
            for sides in loaded.classes.sides(row):
                full_name = name if sides == 1 else f'{name}_pairs'
                signatures[full_name] = compute, width, sides
    if not signatures:
        vectors = loaded.vectors
        signatures['embed'] = vectors.embed, vectors.width(), 1
    return signatures


def convert(
    loaded: 'Loaded', lengths: Sequence[int], precision: str
) -> bytes:
    """Converts a workdir to the content of model.tflite.

    Raises:
        ValueError: LiteRT cannot compute the graph.
    """
    import tensorflow as tf
    from tensorflow.lite.python.convert_phase import ConverterError

    functions = {}
    for name, (compute, _, sides) in signatures_of(loaded).items():
        for length in lengths:
            specs = [
                tf.TensorSpec((1, length), tf.int32, 'ids'),
                tf.TensorSpec((1,), tf.int32, 'length'),
                tf.TensorSpec((1,), tf.int32, 'second'),
            ]
            functions[f'{name}_{length}'] = tf.function(
                lambda *args, compute=compute: {'answer': compute(*args)},
                input_signature=specs[: 1 + sides],
                autograph=False,
            ).get_concrete_function()
    module = tf.Module()
    module.weights = [v.value for v in loaded.model.variables.values()]
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=list(functions)
        )
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.TFLITE_BUILTINS
        ]
        if precision != 'float32':
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == 'float16':
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except ConverterError as error:
            # A line for each place; the first has the reason.
            reason = str(error).strip().split('error: ')[-1].splitlines()[0]
            raise errors.InputError(
                'litert_lacks_operation',
                f'LiteRT lacks what this model computes: {reason}',
            ) from None


def write(
    init: str | pathlib.Path,
    output: str | pathlib.Path,
    seq_len: int | None = None,
    precision: str = 'int8',
    dev: labelling.TableExamples | None = None,
    sts: str | None = None,
) -> dict[str, Any]:
    """Writes a folder, whole or not at all.

    Args:
        init: the workdir of a finished run.
        output: the folder.
        seq_len: T at most; None: what the model was trained on.
        precision: one of PRECISIONS.
        dev: labelled texts to measure for the card.
        sts: a file of STS-B to measure for the card.

    Returns:
        The numbers of the card.

    Raises:
        FileExistsError, ValueError: as `check` and `convert`.
    """
    init, output = pathlib.Path(init), pathlib.Path(output)
    config = Config.read(init)
    check(config, init, output)
    longest = seq_len or config.max_length
    if longest > config.max_length:
        raise errors.InputError(
            'seq_len_over_model',
            f'--seq_len={seq_len}: this model reads {config.max_length} '
            'tokens; lower it',
        )
    loaded = infoword_tf.load(init)
    if longest < config.max_length:
        loaded = loaded.with_config(config.replace(max_length=longest))
    lengths = lengths_of(longest)
    content = convert(loaded, lengths, precision)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.parent / f'.{output.name}.{os.getpid()}'
    try:
        partial.mkdir()
        (partial / 'model.tflite').write_bytes(content)
        write_tokenizer(partial, loaded.tokenizer)
        facts = facts_of(loaded, lengths)
        files.write_json(partial / 'model.json', facts)
        shutil.copy(standalone.__file__, partial / 'model.py')
        record = compared(partial, loaded) | {
            'precision': precision,
            'lengths': lengths,
            'bytes': len(content),
            'weights': sum(
                int(np.prod(v.shape)) for v in loaded.model.variables.values()
            ),
        }
        written = standalone.Model(partial)
        if dev is not None:
            models = {'float32': loaded, precision: written}
            record['dev'] = scores_of(models, dev, config)
        if sts is not None:
            exact = functools.partial(loaded.encode, progress=False)
            record['sts'] = task.correlations(
                sts,
                config.similarity,
                {'float32': exact, precision: written.encode},
            )
        metrics, flags = (
            path.read_text() if path.is_file() else ''
            for path in (init / 'metrics.json', init / 'flags.txt')
        )
        (partial / 'MODEL_CARD.md').write_text(
            described(loaded, record, json.loads(metrics or '{}'), flags)
        )
        os.rename(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return record


def facts_of(loaded: 'Loaded', lengths: Sequence[int]) -> dict[str, Any]:
    """Returns the content of model.json."""
    config, (before, after) = loaded.config, loaded.template.around_two
    return {
        'signatures': {
            name: width
            for name, (_, width, _) in signatures_of(loaded).items()
        },
        'lengths': list(lengths),
        'around': [loaded.before, loaded.after],
        'around_two': [before, loaded.template.between, after],
        'padding': loaded.tokenizer.pad_id,
        'prompts': dict(config.prompts),
        'prompt': config.prompt or '',
        'labels': list(config.labels),
        'multilabel': loaded.classes.multilabel,
        'both_ways': any(
            loaded.model.objectives[row].texts == 'both_ways'
            for row in loaded.rows_that(*HEADS)
        ),
    }


def write_tokenizer(folder: pathlib.Path, tokenizer: Any) -> None:
    """Writes the files of `model.read_tokenizer`."""
    from infoword_tf.text import normalization
    from infoword_tf.text.added import ADDED

    tokenizer.write(folder / 'vocab.txt')
    plain = tokenizer.inner
    characters = _characters(normalization.spaced_forms(plain.normalization))
    added = tokenizer.options.get(ADDED, [])
    if any(token['normalized'] for token in added):
        characters['normalized'] = _characters(
            normalization.bert_forms(plain.normalization)
        )
    if added:
        characters['added'] = added
    (folder / 'characters.json').write_text(
        json.dumps(characters, ensure_ascii=False), encoding='utf-8'
    )


def _characters(table: Mapping[str, str]) -> dict[str, Any]:
    """Groups characters that become alike, so that the file stays short."""
    # Forms with `*` in the place of the character, which most have in common.
    general = {c: form.replace(c, '*') for c, form in table.items()}
    common = ('', ' ', ' * ')
    runs: list[list[Any]] = []
    for character in sorted(c for c in table if general[c] in common):
        code, form = ord(character), general[character]
        if runs and runs[-1][1:] == [code - 1, form]:
            runs[-1][1] = code
        else:
            runs.append([code, code, form])
    forms = {c: form for c, form in table.items() if general[c] not in common}
    return {'runs': runs, 'forms': dict(sorted(forms.items()))}


def compared(folder: pathlib.Path, loaded: 'Loaded') -> dict[str, Any]:
    """Compares the answers of a folder of LiteRT with the workdir's.

    Returns:
        'texts', their number, and 'signatures': by name 'change', the largest
        of a number; of vectors 'cosine', the lowest; of classes 'same', the
        share of texts with the same likeliest class, or 'same_labels' where a
        text may have several.
    """
    from . import comparison

    texts = [
        text
        for raw in comparison.texts(_TEXTS)
        if (text := raw.decode(errors='ignore')).encode() == raw
    ]
    model, signatures = standalone.Model(folder), {}
    for name in signatures_of(loaded):
        sides = [texts, texts[::-1]] if name.endswith('_pairs') else [texts]
        call = {'embed': 'encode', 'regress': 'rate'}.get(
            name.removesuffix('_pairs'), 'classify'
        )
        quiet = {'progress': False} if name == 'embed' else {}
        ours = getattr(loaded, call)(*sides, **quiet)
        theirs = getattr(model, call)(*sides)
        record = {'change': float(np.abs(ours - theirs).max())}
        if name == 'embed':
            norms = np.linalg.norm([ours, theirs], axis=2).prod(axis=0)
            cosines = (ours * theirs).sum(axis=1) / np.maximum(norms, 1e-12)
            record['cosine'] = float(cosines.min())
        elif name.startswith('classify') and loaded.classes.multilabel:
            ours, theirs = (x >= measures.LIKELY for x in (ours, theirs))
            same = ours == theirs
            record['same_labels'] = float(same.all(axis=1).mean())
        elif name.startswith('classify') and ours.shape[1] > 1:
            same = ours.argmax(axis=1) == theirs.argmax(axis=1)
            record['same'] = float(same.mean())
        signatures[name] = record
    return {'texts': len(texts), 'signatures': signatures}


def scores_of(
    models: Mapping[str, Any], dev: labelling.TableExamples, config: Config
) -> dict[str, Any]:
    """Measures models by name on labelled texts, for the card; see `scored`."""
    return {'data': dev.where, 'examples': len(dev.first)} | {
        name: scored(model, dev, config) for name, model in models.items()
    }


def scored(
    model: Any, examples: labelling.TableExamples, config: Config
) -> dict[str, float]:
    """Measures a `Loaded`, or a `Model` of model.py, on labelled texts.

    Returns:
        Metrics of the task by name, of those in MEASURES; without one accuracy,
        f1_micro of several labels, or Spearman's correlation of numbers.
    """
    metrics = config.task.metrics if config.task else ()
    # A task may count otherwise, over several examples.
    names = tuple(name for name in metrics if name in measures.MEASURES)
    labels = config.labels
    if config.task and (glue := glue_layout.TASKS.get(config.task.name)):
        labels = glue.labels  # as its files write them
    if examples.scores is not None:
        answers = model.rate(examples.first, examples.second)
        right = examples.scores
        names = names or ('spearman',)
    else:
        answers = model.classify(examples.first, examples.second)
        several = examples.label_sets is not None
        if several:
            answers = answers >= measures.LIKELY
        else:
            answers = answers.argmax(axis=1)
        right = labelling.known_labels(examples, labels)
        names = names or ('f1_micro' if several else 'accuracy',)
    return {n: float(measures.MEASURES[n](answers, right)) for n in names}


def described(
    loaded: 'Loaded',
    record: Mapping[str, Any],
    metrics: Mapping[str, Any],
    flags: str = '',
) -> str:
    """Renders the model card: sizes, and the cost of the precision.

    Args:
        loaded: the workdir.
        record: result of `write`.
        metrics: the last values of the run.
        flags: flags of the run, as a flagfile.
    """
    from . import card

    config, precision = loaded.config, record['precision']
    dev, sts = record.get('dev', {}), record.get('sts')
    changes = (
        f'| `{name}` | {values["change"]:.4f} | '
        + ''.join(
            text.format(values[x]) for x, text in ALIKE.items() if x in values
        )
        + ' |'
        for name, values in record['signatures'].items()
    )
    scores = (
        f'{name} {value:.4f} ({dev["float32"][name]:.4f} in float32)'
        for name, value in dev.get(precision, {}).items()
    )
    whole = 4 * record['weights']
    facts = {
        'config': config,
        'record': record,
        'shape': card.shape_of(config),
        'fine_tuned': card.fine_tuned(config),
        'megabytes': record['bytes'] / 1e6,
        'share': record['bytes'] / whole,
        'whole': whole / 1e6,
        'lengths': ', '.join(map(str, record['lengths'])),
        'longest': record['lengths'][-1],
        'labels': ', '.join(f'`{label}`' for label in config.labels) or None,
        'teacher': card.lost(config, record['weights'], metrics, flags),
        'changes': '\n'.join(changes),
        'dev': dev or None,
        'dev_data': card.portable(dev.get('data', '')),
        'scores': ', '.join(scores),
        'sts': sts,
        'sts_here': sts and sts[precision],
    }
    return card.filled(pathlib.Path(__file__).with_suffix('.md'), facts)


@commands.takes(LitertChoices)
def run(choices: LitertChoices, chosen: Mapping[str, Any]) -> None:
    """Runs the command."""
    commands.require(
        vars(choices),
        init='the workdir to write for LiteRT',
        output='a folder that is not there yet',
    )
    began = time.monotonic()
    output = pathlib.Path(choices.output)
    config = Config.read(pathlib.Path(choices.init))
    check(config, choices.init, output)
    heads = answering(HEADS, config.rows)
    if choices.dev and not heads:
        raise errors.UsageError(
            'dev_without_labels',
            f'--dev is of labelled texts, and --init={choices.init} was taught '
            'none; of vectors --sts says what they are worth',
        )
    if choices.sts and heads:
        raise errors.UsageError(
            'sts_without_vectors',
            f'--sts is of vectors, and --init={choices.init} gives classes or '
            'numbers; --dev says what they are worth',
        )
    if choices.sts:
        task.read(pathlib.Path(choices.sts))  # complains before the work
    dev = None
    if choices.dev:
        regress = bool(answering(('numbers',), heads))
        dev = labelling.examples_of(
            tables.open_table(choices.dev, lists=[choices.label]),
            labelling.TableColumns(
                choices.text, choices.pair, choices.label, regress,
                label_columns=choices.label_columns, lists=not regress,
            ),
        )  # fmt: skip
    record = write(
        choices.init,
        output,
        seq_len=choices.seq_len,
        precision=choices.precision,
        dev=dev,
        sts=choices.sts,
    )
    print(
        f'{output}/: {", ".join(record["signatures"])}; {choices.precision}, '
        f'{record["bytes"] / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


if __name__ == '__main__':
    commands.start(run)
