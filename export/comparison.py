"""A comparison of the outputs of an export with answers in Python."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf.critics import CRITICS
from infoword_tf.errors import InputError

from . import runner

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

Outputs = dict[str, np.ndarray]  # by name
TOLERANCE = {'float32': 1e-5, 'bfloat16': 0.1}
NASTY = (
    b'',
    b' \t\r\n ',
    b'\0',
    b'before\0after',
    b'\xff\xfe no UTF-8 \xc3',
    b'\xed\xa0\x80 half a surrogate pair',
    '\ufeffa byte order mark, soft\u00adhyphen, zero\u200bwidth'.encode(),
    'emoji 😀👩\u200d💻🇩🇪 in a row'.encode(),
    'שלום עולם, مرحبا بالعالم'.encode(),
    'naïve Straße ﬁne … ½ İstanbul'.encode(),
    'combining e\u0301 a\u0308 and 漢字かな交じり文'.encode(),
    b'[CLS] [SEP] [PAD] [UNK] as words',
    b'x' * 1_000_000,
    b'many short words ' * 60_000,  # 1 MB too
)
MASKED = (
    b'[MASK]',
    b'read a [MASK] file',
    b'[MASK][MASK] two at once [MASK]',
    b'un[MASK]able, [mask] [ MASK ]',
    b'no utf-8 \xff [MASK] \0 nul',
    b'[MASK] ' * 12,
    b'[MASK] ' + b'far ' * 2_000 + b'[MASK]',
)


def paragraphs(count: int) -> list[bytes]:
    """Returns paragraphs of the language reference."""
    from pydoc_data import topics

    known = [
        ' '.join(paragraph.split()).encode()
        for text in topics.topics.values()
        for paragraph in text.split('\n\n')
    ]
    return known[:: max(1, len(known) // count)][:count]


def texts(count: int) -> list[bytes]:
    """Returns `paragraphs`, mixed with nasty texts."""
    mixed = [*paragraphs(count), *NASTY, *MASKED]
    random.Random(0).shuffle(mixed)
    return mixed


def batches(count: int) -> dict[str, list[bytes]]:
    """Returns batches of `texts`, of one text and of none, by name."""
    return {'all': texts(count), 'one': [MASKED[1]], 'none': []}


def run_elsewhere(
    model: pathlib.Path,
    batches: Mapping[str, Sequence[bytes]],
    python: str,
    done: Callable[[], Any] | None = None,
    timed: Sequence[bytes] = (),
) -> tuple[dict[str, Outputs], dict[str, Any]]:
    """Runs a copy of an export in a process without access to the project.

    Args:
        model: the folder of a version.
        batches: texts by name.
        python: an interpreter that has tensorflow and tensorflow_text.
        done: called after each signature of each batch.
        timed: texts by which the speed is measured; none: it is not.

    Returns:
        By batch the outputs by `signature/output`, and the runner's report.

    Raises:
        ValueError: the process failed; the message ends with its last lines.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        moved = folder / 'moved'
        shutil.copytree(model, moved)
        for batch, content in batches.items():
            runner.write_texts(folder / f'{batch}.texts', content)
        if timed:
            runner.write_texts(folder / 'timed', timed)
        # -I: neither PYTHONPATH nor this folder, so the project is not found.
        command = [python, '-I', os.path.abspath(runner.__file__)]
        with (
            open(folder / 'errors', 'w+', errors='replace') as errors,
            subprocess.Popen(
                [*command, moved, folder],
                cwd=folder,
                env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,
        ):
            try:
                for _ in process.stdout or ():
                    if done is not None:
                        done()
            except BaseException:  # Ctrl-C, too: nobody waits for answers
                process.kill()
                raise
        if process.returncode:
            lines = (folder / 'errors').read_text(errors='replace')
            last = ' | '.join(lines.strip().splitlines()[-3:])
            raise InputError(
                'export_does_not_run',
                f'{model} did not run in {python}: {last}',
            )
        report = json.loads((folder / 'report.json').read_text())
        outputs = {}
        for batch in batches:
            with np.load(folder / f'{batch}.npz') as file:
                outputs[batch] = dict(file)
        return outputs, report


def in_python(
    loaded: 'Loaded',
    content: Sequence[bytes],
    names: Iterable[str],
    default: str = 'embed',
    done: Callable[[], Any] | None = None,
) -> Outputs:
    """Computes the outputs of `runner`, by `signature/output`, with `Loaded`.

    `serving_default` is the signature `default`; `done` as of `run_elsewhere`.
    """
    outputs = {}
    for name in names:
        of = default if name == 'serving_default' else name
        for output, value in _answered(loaded, content, of).items():
            outputs[f'{name}/{output}'] = value
        if done is not None:
            done()
    return outputs


def _answered(loaded: 'Loaded', content: Sequence[bytes], name: str) -> Outputs:
    """Computes the outputs of one signature, by name."""
    role = 'query' if name.endswith('_query') else 'passage'
    pairs = content[::-1] if name.endswith('_pairs') else None
    for critic, answer in loaded.by_critic.items():
        of = CRITICS[critic]
        if of.of(loaded.config) is not None and name == of.signature_of(
            loaded.config, role, loaded
        ):
            return answer.expected(content, role)
    kind, _, prompt = name.partition('_')
    if kind == 'embed':
        vectors = loaded.encode(content, progress=False, prompt=prompt or None)
        return {'embeddings': vectors}
    if kind == 'classify':
        return _classify(loaded, content, pairs)
    if kind == 'regress':
        return {'score': loaded.rate(content, pairs)}
    if kind == 'score':
        return {'score': loaded.score_pairs(content, pairs)}
    if kind == 'choose':
        # Near probabilities may change the choice, so it is not compared.
        choices = [content[::-1], content]
        return {'probabilities': loaded.choose(content, choices)}
    others = {'answer': _answer, 'tokens': _tokens, 'fill_mask': _fill_mask,
              'next_token': _next_token, 'tag': _tag}  # fmt: skip
    return others[name](loaded, content)


def _classify(
    loaded: 'Loaded', content: Sequence[bytes], pairs: Sequence[bytes] | None
) -> Outputs:
    """Computes all outputs but the best label, which near scores may change."""
    outputs = {'probabilities': loaded.classify(content, pairs)}
    if content:
        names = np.array([label.encode() for label in loaded.config.labels])
        outputs['labels'] = np.tile(names, (len(content), 1))
    return outputs


def _answer(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """Computes outputs but texts and bytes, which near scores may change.

    Where there are fewer answers than columns scores are NaN.
    """
    from infoword_tf.inference.answers import N_BEST

    shape = (len(content), N_BEST)
    scores, shares = np.full(shape, np.nan, np.float32), np.zeros(shape, 'f')
    replies = loaded.answer(content, content[::-1])
    for i, reply in enumerate(replies):
        for column, answer in enumerate(reply.best):
            scores[i, column] = answer.score
            shares[i, column] = answer.probability
    outputs = {'scores': scores, 'probabilities': shares}
    if loaded.reader.head.null:
        odds = [reply.null_odds if reply.best else np.nan for reply in replies]
        outputs['null_odds'] = np.array(odds, np.float32)
    return outputs


def _tokens(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    import tensorflow as tf

    from infoword_tf.text.template import to_dense, with_special_tokens

    texts = tf.constant(content, tf.string)
    _, *offsets = loaded.tokenizer.tokenize_with_offsets(texts)
    before, after = [-1] * len(loaded.before), [-1] * len(loaded.after)
    limit = loaded.workdir.free_length
    offsets = (tf.cast(x, tf.int32)[:, :limit] for x in offsets)
    starts, ends = (
        to_dense(with_special_tokens(before, x, after), -1).numpy()
        for x in offsets
    )
    padded, lengths, _ = loaded.format_texts(texts)
    padded, lengths = padded.numpy(), lengths.numpy()
    states = np.zeros((*padded.shape, loaded.encoder.width), np.float32)
    order = np.argsort(lengths, kind='stable')
    for begin in range(0, len(order), 64):  # another padding than the graph's
        chunk = order[begin : begin + 64]
        longest = lengths[chunk].max()
        batch = loaded.states(
            tf.constant(padded[chunk, :longest]), tf.constant(lengths[chunk])
        ).numpy()
        batch[np.arange(longest) >= lengths[chunk, None]] = 0
        states[chunk, :longest] = batch
    return {'states': states, 'starts': starts, 'ends': ends, 'ids': padded,
            'lengths': lengths}  # fmt: skip


def _fill_mask(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """Computes outputs of `fill_mask`; NaN scores where Python refuses."""
    from .signatures import ANSWERS, MASKS

    shape = (len(content), MASKS, ANSWERS)
    tokens, scores = np.full(shape, b'', 'S200'), np.zeros(shape, np.float32)
    count = np.array([text.count(b'[MASK]') for text in content], np.int32)
    for i in np.flatnonzero(count).tolist():
        try:
            answers = loaded.fill_mask(content[i], ANSWERS)
        except ValueError:  # too long: the graph truncates, Python refuses
            scores[i] = np.nan
            continue
        for place, answer in enumerate(answers[:MASKS]):
            tokens[i, place] = [token.encode() for token, _ in answer]
            scores[i, place] = [score for _, score in answer]
    return {'tokens': tokens, 'scores': scores, 'count': count}


def _next_token(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """Computes outputs of `next_token`, text by text."""
    from .signatures import ANSWERS

    answers = [loaded.next_tokens(text, ANSWERS) for text in content]
    shape = (len(content), min(ANSWERS, len(loaded.tokenizer)))
    tokens, scores = np.full(shape, b'', 'S200'), np.zeros(shape, np.float32)
    for i, answer in enumerate(answers):
        tokens[i] = [token.encode() for token, _ in answer]
        scores[i] = [score for _, score in answer]
    return {'tokens': tokens, 'scores': scores}


def _tag(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """Computes outputs but texts; none if near scores may change a label."""
    import tensorflow as tf

    if not content:
        return {}
    tagger = loaded.tagger
    texts = tf.constant(content, tf.string)
    windows = tagger.windows(texts)
    scores = tagger.scores(windows)
    best = np.sort(scores, axis=1)[:, -2:]
    gap = np.diff(best, axis=1).min(initial=np.inf)
    if gap <= TOLERANCE[loaded.model.encoder.compute_dtype]:
        return {}
    outputs = tagger.spans(texts, windows, *tagger.decide(windows, scores))
    del outputs['texts']
    return {name: value.numpy() for name, value in outputs.items()}


def difference(
    actual: Outputs, expected: Outputs, tolerance: float
) -> dict[str, float]:
    """Computes the largest difference of each output.

    Whole numbers and tokens must be equal, but for tokens whose scores are
    closer than `tolerance`; else the difference is infinite, as it is where
    `actual` has NaN or infinity. NaN in `expected` is not compared. With the
    tolerance of bfloat16 gaps are shares of the output's largest number, if
    that is above 1: states of some models are in the tens. Weights of the
    vocabulary are compared by `ids`, in any order: near weights change places.
    """
    sparse = [x for x in expected if x.endswith('/weights')]
    gaps = {x: _weights_gap(x, actual, expected, tolerance) for x in sparse}
    ids = {x.replace('/weights', '/ids') for x in sparse}
    return gaps | {
        name: _gap(name, actual.get(name), expected, tolerance)
        for name in expected
        if name not in gaps and name not in ids
    }


def _weights_gap(
    name: str, actual: Outputs, expected: Outputs, tolerance: float
) -> float:
    if name not in actual:
        return float('inf')
    keys, values = [], []
    for sign, outputs in ((1, actual), (-1, expected)):
        ids = outputs[name.replace('/weights', '/ids')].astype(np.int64)
        keys.append((np.arange(len(ids))[:, None] << 32 | ids).ravel())
        values.append(sign * outputs[name].ravel())
    _, place = np.unique(np.concatenate(keys), return_inverse=True)
    gaps = np.abs(np.bincount(place, np.concatenate(values)))
    if not np.isfinite(gaps).all():
        return float('inf')
    if tolerance >= TOLERANCE['bfloat16']:
        gaps = gaps / expected[name].max(initial=1.0)
    return float(gaps.max(initial=0.0))


def _gap(
    name: str, other: np.ndarray | None, expected: Outputs, tolerance: float
) -> float:
    value = expected[name]
    if other is None or other.shape != value.shape:
        return float('inf')
    if value.dtype.kind == 'f':
        if not np.isfinite(other).all():  # NaN is above nothing
            return float('inf')
        known = ~np.isnan(value)
        gap = np.abs(other - value)[known]
        if tolerance >= TOLERANCE['bfloat16']:
            gap = gap / np.abs(value[known]).max(initial=1.0)
        return float(gap.max(initial=0.0))
    same = other == value
    if name.endswith('/tokens'):
        scores = expected[name.replace('/tokens', '/scores')]
        same |= _near_a_neighbour(scores, tolerance) | np.isnan(scores)
    return 0.0 if np.all(same) else float('inf')


def _near_a_neighbour(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """Finds falling scores [..., n] that may change places, [..., n] bool.

    The last may, because its successor is unknown.
    """
    gaps = np.diff(scores, axis=-1, prepend=np.inf, append=scores[..., -1:])
    close = np.abs(gaps) <= 2 * tolerance
    return close[..., :-1] | close[..., 1:]


def largest(
    actual: Mapping[str, Outputs],
    expected: Mapping[str, Outputs],
    tolerance: float,
) -> dict[str, float]:
    """Computes the largest `difference` of each output over all batches."""
    worst: dict[str, float] = {}
    for batch, outputs in expected.items():
        for name, gap in difference(actual[batch], outputs, tolerance).items():
            worst[name] = max(worst.get(name, 0.0), gap)
    return worst


def show(worst: Mapping[str, float], tolerance: float) -> bool:
    """Prints a table; returns whether no difference is above `tolerance`."""
    width = max(map(len, worst))
    for name, gap in sorted(worst.items()):
        verdict = '' if gap <= tolerance else f'   above {tolerance:g}'
        print(f'  {name:<{width}}  {gap:.1e}{verdict}')
    return max(worst.values()) <= tolerance
