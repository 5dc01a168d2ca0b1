"""sentence-transformers' trainer on pairs of a file, for benchmarks.sentences.

    .venv-peers/bin/python benchmarks/peers/sentences.py SPEC OUTPUT

SPEC is JSON: source (a folder), pairs (a csv: a, b and negatives), steps,
batch_size, seq_len, learning_rate, temperature, seed, bf16, threads, skip (the
first so many updates are not timed), save (a folder for the trained model, or
null). The loss is MultipleNegativesRankingLoss. OUTPUT gets the seconds of the
timed updates. It imports nothing of this project.
"""

import csv
import json
import os
import sys
import tempfile
import time

os.environ['TRANSFORMERS_VERBOSITY'] = 'error'
os.environ['TOKENIZERS_PARALLELISM'] = 'true'

import datasets
import sentence_transformers as st
import torch
import transformers
from sentence_transformers import losses


class Clock(transformers.TrainerCallback):
    """When each update ended."""

    def __init__(self) -> None:
        """None has yet."""
        self.ends: list[float] = []

    def on_step_end(self, *args: object, **kwargs: object) -> None:
        """Called by the trainer."""
        self.ends.append(time.monotonic())


def main() -> None:
    """The whole program."""
    spec = json.loads(open(sys.argv[1]).read())
    torch.set_num_threads(spec['threads'])
    model = st.SentenceTransformer(spec['source'], device='cpu')
    model.max_seq_length = spec['seq_len']
    with open(spec['pairs'], newline='', encoding='utf-8') as file:
        names, *rows = csv.reader(file)
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = st.SentenceTransformerTrainer(
            model=model,
            args=st.SentenceTransformerTrainingArguments(
                output_dir=folder,
                max_steps=spec['steps'],
                per_device_train_batch_size=spec['batch_size'],
                learning_rate=spec['learning_rate'],
                warmup_ratio=0.1,
                seed=spec['seed'],
                bf16=spec['bf16'],
                use_cpu=True,
                save_strategy='no',
                report_to='none',
                disable_tqdm=True,
            ),
            train_dataset=datasets.Dataset.from_dict(columns),
            loss=losses.MultipleNegativesRankingLoss(
                model, scale=1 / spec['temperature']
            ),
            callbacks=[clock],
        )
        trainer.train()
    if spec['save']:
        model.save_pretrained(spec['save'])
    with open(sys.argv[2], 'w') as file:
        json.dump({'seconds': clock.ends[-1] - clock.ends[spec['skip'] - 1]},
                  file)  # fmt: skip


if __name__ == '__main__':
    main()
