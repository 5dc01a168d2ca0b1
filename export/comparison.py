"""The outputs of an export compared with those in Python, on many texts."""

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

from export import runner

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


def texts(count: int) -> list[bytes]:
    """Paragraphs of the language reference, the nasty texts among them."""
    from pydoc_data import topics

    found = [
        ' '.join(paragraph.split()).encode()
        for text in topics.topics.values()
        for paragraph in text.split('\n\n')
    ]
    chosen = [*found[:: max(1, len(found) // count)][:count], *NASTY, *MASKED]
    random.Random(0).shuffle(chosen)
    return chosen


def batches(count: int) -> dict[str, list[bytes]]:
    """`texts`, one text alone, and none."""
    return {'all': texts(count), 'one': [MASKED[1]], 'none': []}


def run_elsewhere(
    model: pathlib.Path,
    batches: Mapping[str, Sequence[bytes]],
    python: str,
    done: Callable[[], Any] | None = None,
) -> tuple[dict[str, Outputs], dict[str, Any]]:
    """Runs a copy of an export in a process that has not this project.

    Args:
        model: the folder of a version.
        batches: texts by name.
        python: an interpreter that has tensorflow and tensorflow_text.
        done: called after each signature of each batch; None: nothing is.

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
        # -I: neither PYTHONPATH nor this folder, so no way to this project.
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
                for _ in process.stdout:
                    if done is not None:
                        done()
            except BaseException:  # Ctrl-C too: nobody waits for an answer
                process.kill()
                raise
        if process.returncode:
            lines = (folder / 'errors').read_text(errors='replace')
            last = ' | '.join(lines.strip().splitlines()[-3:])
            raise ValueError(f'{model} did not run in {python}: {last}')
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
    """What `runner` gives for these texts, by the calls of `Loaded`.

    Outputs are by `signature/output`; `default` is what `serving_default` is,
    and `done` as of `run_elsewhere`.
    """
    outputs = {}
    for name in names:
        of = default if name == 'serving_default' else name
        for output, value in _answered(loaded, content, of).items():
            outputs[f'{name}/{output}'] = value
        if done is not None:
            done()
    return outputs


def _answered(
    loaded: 'Loaded', content: Sequence[bytes], name: str
) -> Outputs:
    """Outputs of one signature by name."""
    kind, _, prompt = name.partition('_')
    pairs = content[::-1] if name.endswith('_pairs') else None
    if kind == 'embed':
        vectors = loaded.encode(content, progress=False, prompt=prompt or None)
        return {'embeddings': vectors}
    if kind == 'classify':
        return _classify(loaded, content, pairs)
    if kind == 'regress':
        return {'score': loaded.rate(content, pairs)}
    if kind == 'choose':
        # Near probabilities may change the choice, so it is not compared.
        choices = [content[::-1], content]
        return {'probabilities': loaded.choose(content, choices)}
    others = {'answer': _answer, 'tokens': _tokens, 'fill_mask': _fill_mask,
              'next_token': _next_token}  # fmt: skip
    return others[name](loaded, content)


def _classify(
    loaded: 'Loaded', content: Sequence[bytes], pairs: Sequence[bytes] | None
) -> Outputs:
    """Outputs but the best label, which near scores may change."""
    outputs = {'probabilities': loaded.classify(content, pairs)}
    if content:
        names = np.array([label.encode() for label in loaded.config.labels])
        outputs['labels'] = np.tile(names, (len(content), 1))
    return outputs


def _answer(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """Outputs but texts and bytes, which near scores may change.

    Where there are fewer answers than columns scores are NaN.
    """
    from infoword_tf.inference.answers import N_BEST

    shape = (len(content), N_BEST)
    scores, shares = np.full(shape, np.nan, np.float32), np.zeros(shape, 'f')
    replies = loaded.answer(content, content[::-1])
    for row, reply in enumerate(replies):
        for column, answer in enumerate(reply.best):
            scores[row, column] = answer.score
            shares[row, column] = answer.probability
    outputs = {'scores': scores, 'probabilities': shares}
    if loaded.reader.head.null:
        odds = [reply.null_odds if reply.best else np.nan for reply in replies]
        outputs['null_odds'] = np.array(odds, np.float32)
    return outputs


def _tokens(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    import tensorflow as tf

    from infoword_tf.text.template import lay_out, table

    texts = tf.constant(content, tf.string)
    _, *offsets = loaded.tokenizer.tokenize_with_offsets(texts)
    before, after = [-1] * len(loaded.before), [-1] * len(loaded.after)
    starts, ends = (
        table(
            lay_out(
                before, tf.cast(x, tf.int32)[:, : loaded.free_length], after
            ),
            -1,
        ).numpy()
        for x in offsets
    )
    padded, lengths, _ = loaded.laid_out(texts)
    padded, lengths = padded.numpy(), lengths.numpy()
    states = np.zeros((*padded.shape, loaded.encoder.width), np.float32)
    order = np.argsort(lengths, kind='stable')
    for begin in range(0, len(order), 64):  # another padding than the graph's
        rows = order[begin : begin + 64]
        longest = lengths[rows].max()
        made = loaded.states(
            tf.constant(padded[rows, :longest]), tf.constant(lengths[rows])
        ).numpy()
        made[np.arange(longest) >= lengths[rows, None]] = 0
        states[rows, :longest] = made
    return {'states': states, 'starts': starts, 'ends': ends, 'ids': padded,
            'lengths': lengths}  # fmt: skip


def _fill_mask(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """As far as `Loaded.fill_mask` answers; elsewhere the scores are NaN."""
    from export.signatures import ANSWERS, MASKS

    shape = (len(content), MASKS, ANSWERS)
    tokens, scores = np.full(shape, b'', 'S200'), np.zeros(shape, np.float32)
    count = np.array([text.count(b'[MASK]') for text in content], np.int32)
    for row in np.nonzero(count)[0]:
        try:
            answers = loaded.fill_mask(content[row], ANSWERS)
        except ValueError:  # too long: the graph cuts, Python refuses
            scores[row] = np.nan
            continue
        for place, answer in enumerate(answers[:MASKS]):
            tokens[row, place] = [piece.encode() for piece, _ in answer]
            scores[row, place] = [score for _, score in answer]
    return {'tokens': tokens, 'scores': scores, 'count': count}


def _next_token(loaded: 'Loaded', content: Sequence[bytes]) -> Outputs:
    """`Loaded.next_pieces` of each text by itself."""
    from export.signatures import ANSWERS

    answers = [loaded.next_pieces(text, ANSWERS) for text in content]
    shape = (len(content), min(ANSWERS, len(loaded.tokenizer)))
    tokens, scores = np.full(shape, b'', 'S200'), np.zeros(shape, np.float32)
    for row, answer in enumerate(answers):
        tokens[row] = [piece.encode() for piece, _ in answer]
        scores[row] = [score for _, score in answer]
    return {'tokens': tokens, 'scores': scores}


def difference(
    found: Outputs, wanted: Outputs, tolerance: float
) -> dict[str, float]:
    """The largest difference of each output.

    Whole numbers must be equal, and so must pieces, but for pairs whose
    scores are closer than `tolerance`; otherwise the difference is infinite.
    Where the tolerance is one of bfloat16, gaps are shares of the output's
    largest number, if that is above 1: states of some models are in the tens.
    So it is where `found` has NaN or infinity, whatever was wanted there. NaN
    in `wanted` is not compared.
    """
    return {
        name: _gap(name, found.get(name), wanted, tolerance) for name in wanted
    }


def _gap(
    name: str, other: np.ndarray | None, wanted: Outputs, tolerance: float
) -> float:
    """See `difference`."""
    value = wanted[name]
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
        scores = wanted[name.replace('/tokens', '/scores')]
        same |= _near_a_neighbour(scores, tolerance) | np.isnan(scores)
    return 0.0 if np.all(same) else float('inf')


def _near_a_neighbour(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """[..., n]: which of scores in falling order may change places.

    The last may with the one after it, which is not known.
    """
    gaps = np.diff(scores, axis=-1, prepend=np.inf, append=scores[..., -1:])
    close = np.abs(gaps) <= 2 * tolerance
    return close[..., :-1] | close[..., 1:]


def largest(
    found: Mapping[str, Outputs],
    wanted: Mapping[str, Outputs],
    tolerance: float,
) -> dict[str, float]:
    """The largest `difference` of each output over all batches."""
    worst: dict[str, float] = {}
    for batch, outputs in wanted.items():
        for name, gap in difference(found[batch], outputs, tolerance).items():
            worst[name] = max(worst.get(name, 0.0), gap)
    return worst


def show(worst: Mapping[str, float], tolerance: float) -> bool:
    """Prints a table; returns whether no difference is above `tolerance`."""
    width = max(map(len, worst))
    for name, gap in sorted(worst.items()):
        verdict = '' if gap <= tolerance else f'   above {tolerance:g}'
        print(f'  {name:<{width}}  {gap:.1e}{verdict}')
    return max(worst.values()) <= tolerance
