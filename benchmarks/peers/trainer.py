"""transformers' Trainer on examples that a file holds, for benchmarks.finetune.

    .venv-peers/bin/python benchmarks/peers/trainer.py SPEC OUTPUT

SPEC is JSON: weights (a folder), examples (train and heldout: first, second or
null, targets), classes (0: a number), steps, evaluate (updates between two
held-out scores), batch_size, seq_len, learning_rate, weight_decay, seed, bf16,
threads. The model is transformers' own encoder with a linear layer over the
first state; batches are padded to their longest text. OUTPUT gets what it said
of the held-out examples each time, and its seconds. It imports nothing of this
project.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ['TRANSFORMERS_VERBOSITY'] = 'error'
os.environ['TOKENIZERS_PARALLELISM'] = 'true'

import numpy as np
import torch
import transformers


class Classifier(torch.nn.Module):
    """Encoder, dropout, linear layer over the first state."""

    def __init__(self, weights: str, classes: int):
        """Args: a folder of transformers; C, 0 of a number."""
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(
            weights, add_pooling_layer=False
        )
        width = self.encoder.config.hidden_size
        self.dropout = torch.nn.Dropout(
            self.encoder.config.hidden_dropout_prob
        )
        self.head = torch.nn.Linear(width, max(1, classes))
        torch.nn.init.normal_(self.head.weight, std=0.02)
        torch.nn.init.zeros_(self.head.bias)
        self.classes = classes

    def forward(self, labels: Any = None, **given: Any) -> dict:
        """Loss and scores."""
        states = self.encoder(**given).last_hidden_state[:, 0]
        scores = self.head(self.dropout(states)).float()
        if self.classes:
            loss = torch.nn.functional.cross_entropy(scores, labels)
        else:
            scores = scores[:, 0]
            loss = torch.nn.functional.mse_loss(scores, labels.float())
        return {'loss': loss, 'logits': scores}


class ClockCallback(transformers.TrainerCallback):
    """Seconds of each update."""

    def __init__(self) -> None:
        """Empty."""
        self.seconds = []

    def on_step_begin(self, *args: Any, **given: Any) -> None:
        """Begins one."""
        self.began = time.perf_counter()

    def on_step_end(self, *args: Any, **given: Any) -> None:
        """Ends it."""
        self.seconds.append(time.perf_counter() - self.began)


def main(spec: dict) -> dict:
    """Trains; returns what OUTPUT holds."""
    torch.set_num_threads(spec['threads'])
    transformers.set_seed(spec['seed'])
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec['weights'])

    def rows(part):
        first, second = part['first'], part['second']
        given = tokenizer(
            first, second, truncation=True, max_length=spec['seq_len']
        )
        return [
            {'label': target, **{k: v[i] for k, v in given.items()}}
            for i, target in enumerate(part['targets'])
        ]

    said, clock = [], ClockCallback()
    evaluations = []

    def kept(output):
        said.append(np.asarray(output.predictions).tolist())
        return {}

    class Timed(transformers.Trainer):
        """Says how long evaluation takes."""

        def evaluate(self, *args: Any, **given: Any) -> Any:
            """As the Trainer does."""
            began = time.perf_counter()
            found = super().evaluate(*args, **given)
            evaluations.append(time.perf_counter() - began)
            return found

    with tempfile.TemporaryDirectory() as folder:
        trainer = Timed(
            model=Classifier(spec['weights'], spec['classes']),
            args=transformers.TrainingArguments(
                output_dir=folder,
                max_steps=spec['steps'],
                per_device_train_batch_size=spec['batch_size'],
                per_device_eval_batch_size=spec['batch_size'],
                learning_rate=spec['learning_rate'],
                weight_decay=spec['weight_decay'],
                warmup_steps=max(1, spec['steps'] // 10),
                lr_scheduler_type='linear',
                max_grad_norm=1.0,
                seed=spec['seed'],
                bf16=spec['bf16'],
                use_cpu=True,
                eval_strategy='steps',
                eval_steps=spec['evaluate'],
                save_strategy='no',
                logging_strategy='no',
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
            ),
            train_dataset=rows(spec['examples']['train']),
            eval_dataset=rows(spec['examples']['heldout']),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=kept,
            callbacks=[clock],
        )
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    return {
        'said': said,
        'step_seconds': clock.seconds,
        'evaluation_seconds': evaluations,
        'seconds': seconds,
    }


if __name__ == '__main__':
    with open(sys.argv[1]) as file:
        found = main(json.load(file))
    with open(sys.argv[2], 'w') as file:
        json.dump(found, file)
