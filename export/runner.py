"""A runner of exports that needs TensorFlow and tensorflow_text alone.

    python runner.py DIR/1 FOLDER

answers every FOLDER/NAME.texts with FOLDER/NAME.npz, in which outputs are
called `signature/output`, and writes what it has imported to
FOLDER/report.json. Any Python from 3.8 and TensorFlow from 2.12 on will do. A
line is printed for each signature that has answered a file.

A file of texts is JSON with a character for each byte (Latin-1), so that every
byte can be sent.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence


def write_texts(path: pathlib.Path, texts: Sequence[bytes]) -> None:
    """Writes texts for `main`."""
    path.write_text(json.dumps([text.decode('latin-1') for text in texts]))


def main(model: str, folder: str, done=lambda line: None) -> None:
    """Answers all texts of a folder; `done` is called with each line."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text

    before = set(sys.modules)
    loaded = tf.saved_model.load(model)
    for path in sorted(pathlib.Path(folder).glob('*.texts')):
        texts = [x.encode('latin-1') for x in json.loads(path.read_text())]
        texts = tf.constant(texts, tf.string)
        answers = {}
        for name, function in loaded.signatures.items():
            inputs = {'texts': texts}
            names = function.structured_input_signature[1]
            if 'pairs' in names:
                inputs['pairs'] = texts[::-1]
            if 'choices' in names:
                inputs['choices'] = tf.stack([texts[::-1], texts], axis=1)
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
    (pathlib.Path(folder) / 'report.json').write_text(json.dumps(report))


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2], lambda line: print(line, flush=True))
