"""A runner of exports that needs TensorFlow and tensorflow_text alone.

    python runner.py DIR/1 FOLDER

answers every FOLDER/NAME.texts with FOLDER/NAME.npz, in which outputs are
called `signature/output`, and writes what it has imported to
FOLDER/report.json. Any Python from 3.8 and TensorFlow from 2.12 on will do. A
line is printed for each signature that has answered a file. Of FOLDER/timed, a
file of texts, the report has the speed of the default signature.

A file of texts is JSON with a character for each byte (Latin-1), so that every
byte can be sent.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def write_texts(path: pathlib.Path, texts: Sequence[bytes]) -> None:
    """Writes texts for `main`."""
    path.write_text(json.dumps([text.decode('latin-1') for text in texts]))


def read_texts(path: pathlib.Path) -> tf.Tensor:
    """Reads texts, as a tensor of strings."""
    import tensorflow as tf

    texts = [x.encode('latin-1') for x in json.loads(path.read_text())]
    return tf.constant(texts, tf.string)


def inputs_of(function, texts) -> dict[str, tf.Tensor]:
    """Makes the inputs of a signature from texts."""
    import tensorflow as tf

    inputs = {'texts': texts}
    names = function.structured_input_signature[1]
    if 'pairs' in names:
        inputs['pairs'] = texts[::-1]
    if 'choices' in names:
        inputs['choices'] = tf.stack([texts[::-1], texts], axis=1)
    return inputs


def speed_of(function, texts) -> dict[str, float]:
    """Times a signature: each text alone, and all together.

    Returns:
        `one`, median milliseconds of a text; and `many`, texts a second.
    """

    def seconds(texts):
        inputs = inputs_of(function, texts)
        begin = time.perf_counter()
        for tensor in function(**inputs).values():
            tensor.numpy()
        return time.perf_counter() - begin

    single = [texts[n : n + 1] for n in range(len(texts))]
    for each in (*single[:10], texts):  # the first ones are optimized
        seconds(each)
    return {
        'one': 1000 * statistics.median(map(seconds, single)),
        'many': len(texts) / min(seconds(texts) for _ in range(3)),
    }


def main(model: str, folder: str, done=lambda line: None) -> None:
    """Answers all texts of a folder; `done` is called with each line."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text

    before = set(sys.modules)
    loaded = tf.saved_model.load(model)
    for path in sorted(pathlib.Path(folder).glob('*.texts')):
        texts, answers = read_texts(path), {}
        for name, function in loaded.signatures.items():
            inputs = inputs_of(function, texts)
            for output, tensor in function(**inputs).items():
                value = tensor.numpy()
                if value.dtype == object:  # an answer may be a megabyte
                    value = value.astype('S999')
                answers[name + '/' + output] = value
            done(path.stem + '/' + name)
        np.savez(path.with_suffix('.npz'), **answers)
    # TensorFlow imports Keras by itself; loading and running must not.
    imported, new = (
        sorted({module.split('.')[0] for module in modules})
        for modules in (sys.modules, set(sys.modules) - before)
    )
    report = {
        'tensorflow': tf.__version__,
        'tensorflow_text': tensorflow_text.__version__,
        'imported': imported,
        'imported_by_the_model': new,
    }
    if (timed := pathlib.Path(folder) / 'timed').exists():
        function = loaded.signatures['serving_default']
        report['speed'] = speed_of(function, read_texts(timed))
    (pathlib.Path(folder) / 'report.json').write_text(json.dumps(report))


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2], lambda line: print(line, flush=True))
