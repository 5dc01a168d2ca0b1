"""How far an export is from Python, without a server."""

import numpy as np

from export import comparison, runner

SIGNATURES = 'serving_default', 'embed', 'tokens', 'fill_mask'


def gaps(model, loaded, folder):
    """By output, the largest difference of an export from its workdir.

    Args:
        model: folder of the export, DIR/1.
        loaded: the workdir in memory.
        folder: where texts and answers go.
    """
    batches = comparison.batches(60)
    for batch, content in batches.items():
        runner.write_texts(folder / f'{batch}.texts', content)
    runner.main(str(model), str(folder))
    found = {}
    for batch in batches:
        with np.load(folder / f'{batch}.npz') as file:
            found[batch] = dict(file)
    wanted = {
        batch: comparison.in_python(loaded, texts, SIGNATURES)
        for batch, texts in batches.items()
    }
    return comparison.largest(found, wanted, 1e-5)
