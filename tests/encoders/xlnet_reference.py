"""Runs Hugging Face's XLNet, for parity, in a process without TensorFlow.

    python tests/encoders/xlnet_reference.py CASES RESULTS

The two frameworks crash in one process. Both files are pickles: cases by
name, each with `config`, `weights` (a state dict) and `inputs` in NumPy;
results by name, `states` [B, Q, D], `memory` [L, B, M, D] or None, and
`layers`, content (and query) states from the embeddings on.
"""

import pickle
import sys

import numpy as np
import torch
import transformers


def run(case):
    """The results of one case."""
    config = transformers.XLNetConfig(**case['config'])
    model = transformers.XLNetModel(config).eval()
    model.load_state_dict(
        {name: torch.tensor(x) for name, x in case['weights'].items()}
    )
    inputs = {name: torch.tensor(x) for name, x in case['inputs'].items()}
    remembers = 'mems' in inputs
    if remembers:
        inputs['mems'] = list(inputs['mems'].transpose(1, 2))
    with torch.no_grad():
        found = model(**inputs, use_mems=remembers, output_hidden_states=True)
    memory = None
    if remembers:
        memory = np.stack([x.transpose(0, 1).numpy() for x in found.mems])
    return {
        'states': found.last_hidden_state.numpy(),
        'memory': memory,
        'layers': [x.numpy() for x in found.hidden_states],
    }


if __name__ == '__main__':
    with open(sys.argv[1], 'rb') as file:
        cases = pickle.load(file)
    results = {name: run(case) for name, case in cases.items()}
    with open(sys.argv[2], 'wb') as file:
        pickle.dump(results, file)
