"""Adapters of PEFT over tiny models of transformers, merged.

    .venv-oracles/bin/python -m tests.oracles.peft [--write]
    .venv-oracles/bin/python -m tests.oracles.peft --folders=DIR

All weights are drawn by name, as in huggingface.py. The second form loads
folders of adapters that our converter wrote, DIR/CASE, over the model
DIR/CASE_base, and compares with DIR/CASE/expected.npy.
"""

import json
import pathlib
import tempfile
from typing import Any

import numpy as np

from tests.oracles import frozen, huggingface

# By case of huggingface.py, settings of the adapter.
CASES: dict[str, dict[str, Any]] = {
    'bert_classes': {
        'r': 2, 'lora_alpha': 6, 'task_type': 'SEQ_CLS',
        'target_modules': ['query', 'value', 'dense'],
    },
    'qwen3_classes': {
        'r': 3, 'lora_alpha': 6, 'task_type': 'SEQ_CLS', 'use_rslora': True,
        'target_modules': 'all-linear',
    },
    'gpt2': {
        'r': 2, 'lora_alpha': 3, 'target_modules': ['c_attn'],
        'fan_in_fan_out': True,
    },
}  # fmt: skip
# What a reader has to know.
KEYS = ('peft_type', 'r', 'lora_alpha', 'use_rslora', 'fan_in_fan_out',
        'bias', 'task_type')  # fmt: skip


def base(case: str) -> Any:
    """The model that an adapter changes."""
    import torch
    import transformers

    kind_of_model, config = huggingface.CASES[case]
    values = {k: v for k, v in config.items() if k != 'model_type'}
    settings = transformers.AutoConfig.for_model(config['model_type'], **values)
    model = getattr(transformers, kind_of_model)(settings).eval()
    state = {
        name: torch.tensor(huggingface.weight(name, tuple(value.shape)))
        for name, value in model.state_dict().items()
        if value.dtype == torch.float32
    }
    model.load_state_dict(state, strict=False)
    return model


def answer(model: Any, case: str) -> np.ndarray:
    """Logits, or states of the last layer."""
    kind = huggingface.CASES[case][1]['model_type']
    actual = huggingface.run(model, kind)
    return actual['logits'] if 'logits' in actual else actual['layers'][-1]


def make() -> dict[str, np.ndarray]:
    """By CASE/answer what a merged model answers.

    CASE/weights and CASE/config are JSON as bytes: by name the shape of a
    weight in the folder, and what adapter_config.json says.
    """
    import peft
    import torch
    from safetensors.numpy import load_file

    arrays = {}
    for case, settings in CASES.items():
        model = peft.get_peft_model(base(case), peft.LoraConfig(**settings))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = pathlib.Path(folder)
            names = load_file(path / 'adapter_model.safetensors')
            config = json.loads((path / 'adapter_config.json').read_text())
        drawn = {
            name: torch.tensor(huggingface.weight(name, value.shape))
            for name, value in names.items()
        }
        peft.set_peft_model_state_dict(model, drawn)
        merged = model.merge_and_unload().eval()
        shapes = {name: list(x.shape) for name, x in names.items()}
        known = {key: config[key] for key in KEYS}
        for part, value in (('weights', shapes), ('config', known)):
            arrays[f'{case}/{part}'] = np.frombuffer(
                json.dumps(value).encode(), np.uint8
            )
        arrays[f'{case}/answer'] = answer(merged, case)
    return arrays


def load(folders: pathlib.Path) -> float:
    """The largest gap to what our converter's folders should answer."""
    import peft
    import transformers

    largest = 0.0
    for folder in sorted(folders.iterdir()):
        if not (folder / 'adapter_config.json').is_file():
            continue
        written = folder.with_name(f'{folder.name}_base')
        (name,) = json.loads((written / 'config.json').read_text())[
            'architectures'
        ]
        model = getattr(transformers, name).from_pretrained(written)
        model = peft.PeftModel.from_pretrained(model, folder)
        actual = answer(model.merge_and_unload().eval(), folder.name)
        gap = np.abs(actual - np.load(folder / 'expected.npy')).max()
        if not gap <= 1e-5:
            raise ValueError(f'{folder.name} differs by {gap:.1e}')
        largest = max(largest, float(gap))
    return largest


if __name__ == '__main__':
    frozen.main('peft', make, load)
