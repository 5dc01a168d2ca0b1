"""transformers' and sentence-transformers' trainers, for benchmarks.trainers.

    .venv-peers/bin/python benchmarks/peers/trainer.py SPEC OUTPUT

SPEC is JSON: of (labels, words or pairs), source (a folder of
sentence-transformers), steps, batch_size, seq_len, learning_rate, seed, bf16,
threads and dropout (null: of the source). For labels it has compiled (whether
PyTorch compiles the encoder), examples (train and heldout: first, second or
null, targets), classes (0: a number) and weight_decay; for words the same with
examples of words and targets, a label for each word of all texts; for pairs a
csv (a, b and negatives) under pairs, in_order (whether its lines are batches as
they come), critic, temperature, query_len, flops (of queries, of passages) and
save, a folder for what was trained. OUTPUT gets the seconds from the end of
each update to that of the next, and scores of held-out examples at the end. It
imports nothing of the project.

Labels: transformers' encoder with a linear layer over the first state; batches
are padded to their longest text. Words: its model for labels of tokens, trained
and read at the first token of each. Pairs: MultipleNegativesRankingLoss of the
critic's kind: late interaction behind a dense layer of 128, lexical weights
with SpladeLoss, pairs that are encoded as one with 4 other candidates.
"""

import csv
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
    """An encoder, dropout, and a linear layer over the first state."""

    def __init__(self, weights: str, classes: int, compiled: bool):
        """Loads a folder of transformers; `classes` is 0 of a number."""
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(weights)
        if compiled:
            self.encoder.forward = torch.compile(
                self.encoder.forward, dynamic=True
            )
        if getattr(self.encoder, 'pooler', None) is not None:
            self.encoder.pooler = None  # nothing reads it
        config = self.encoder.config
        self.dropout = torch.nn.Dropout(
            getattr(config, 'hidden_dropout_prob', 0.0)
        )
        self.head = torch.nn.Linear(config.hidden_size, max(1, classes))
        torch.nn.init.normal_(self.head.weight, std=0.02)
        torch.nn.init.zeros_(self.head.bias)
        self.classes = classes

    def forward(self, labels: Any = None, **inputs: Any) -> dict:
        """Computes loss and scores."""
        states = self.encoder(**inputs).last_hidden_state[:, 0]
        scores = self.head(self.dropout(states)).float()
        if self.classes:
            loss = torch.nn.functional.cross_entropy(scores, labels)
        else:
            scores = scores[:, 0]
            loss = torch.nn.functional.mse_loss(scores, labels.float())
        return {'loss': loss, 'logits': scores}


class ClockCallback(transformers.TrainerCallback):
    """Times at which updates end."""

    def __init__(self) -> None:
        """Initializes an empty list."""
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Notes the time."""
        self.ends.append(time.perf_counter())


def with_dropout(model: Any, spec: dict) -> Any:
    """Returns a model, whose dropout is set to that of the spec."""
    if spec['dropout'] is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = spec['dropout']
    return model


def arguments(spec: dict, folder: str) -> dict[str, Any]:
    """Returns arguments of both trainers."""
    return {
        'output_dir': folder,
        'max_steps': spec['steps'],
        'per_device_train_batch_size': spec['batch_size'],
        'per_device_eval_batch_size': spec['batch_size'],
        'learning_rate': spec['learning_rate'],
        'warmup_steps': max(1, spec['steps'] // 10),
        'seed': spec['seed'],
        'bf16': spec['bf16'],
        'use_cpu': True,
        'save_strategy': 'no',
        'logging_strategy': 'no',
        'report_to': [],
        'disable_tqdm': True,
    }


def train_labels(spec: dict, folder: str, clock: ClockCallback) -> list:
    """Trains; returns scores of the held-out examples, [n, C] or [n]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec['source'])

    def examples(split: dict) -> list[dict]:
        tokens = tokenizer(
            split['first'], split['second'], truncation=True,
            max_length=spec['seq_len'],
        )  # fmt: skip
        return [
            {'label': target, **{k: v[i] for k, v in tokens.items()}}
            for i, target in enumerate(split['targets'])
        ]

    trainer = transformers.Trainer(
        model=with_dropout(
            Classifier(spec['source'], spec['classes'], spec['compiled']), spec
        ),
        args=transformers.TrainingArguments(
            **arguments(spec, folder),
            weight_decay=spec['weight_decay'],
            lr_scheduler_type='linear',
            max_grad_norm=1.0,
            remove_unused_columns=False,
        ),
        train_dataset=examples(spec['examples']['train']),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        callbacks=[clock],
    )
    trainer.train()
    heldout = trainer.predict(examples(spec['examples']['heldout']))
    return np.asarray(heldout.predictions).tolist()


def train_words(spec: dict, folder: str, clock: ClockCallback) -> list:
    """Trains; returns the label of each held-out word, 0 of one that is cut."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec['source'])

    def examples(split: dict) -> tuple[list[dict], list[list[int | None]]]:
        targets = iter(split['targets'])
        texts, firsts = [], []
        for words in split['words']:
            labels = [next(targets) for _ in words]
            tokens = tokenizer(
                words, is_split_into_words=True, truncation=True,
                max_length=spec['seq_len'],
            )  # fmt: skip
            numbers = tokens.word_ids()
            places: list[int | None] = [None] * len(words)
            for place in reversed(range(len(numbers))):
                if numbers[place] is not None:
                    places[numbers[place]] = place
            read = {place: i for i, place in enumerate(places)}
            targeted = [
                labels[read[place]] if place in read else -100
                for place in range(len(numbers))
            ]
            texts.append({**tokens, 'labels': targeted})
            firsts.append(places)
        return texts, firsts

    model = transformers.AutoModelForTokenClassification.from_pretrained(
        spec['source'], num_labels=spec['classes']
    )
    trainer = transformers.Trainer(
        model=with_dropout(model, spec),
        args=transformers.TrainingArguments(
            **arguments(spec, folder),
            weight_decay=spec['weight_decay'],
            lr_scheduler_type='linear',
            max_grad_norm=1.0,
        ),
        train_dataset=examples(spec['examples']['train'])[0],
        data_collator=transformers.DataCollatorForTokenClassification(
            tokenizer
        ),
        callbacks=[clock],
    )
    trainer.train()
    texts, firsts = examples(spec['examples']['heldout'])
    for text in texts:
        del text['labels']  # some labels may not be among the trained ones
    best = trainer.predict(texts).predictions.argmax(axis=2)
    return [
        0 if place is None else int(row[place])
        for row, places in zip(best, firsts, strict=True)
        for place in places
    ]


def train_pairs(spec: dict, folder: str, clock: ClockCallback) -> list:
    """Trains, and saves the model; returns no scores."""
    import datasets

    with open(spec['pairs'], newline='', encoding='utf-8') as file:
        names, *lines = csv.reader(file)
    cells = map(list, zip(*lines, strict=True))
    columns = dict(zip(names, cells, strict=True))
    model, loss, trainer, args = CRITICS[spec['critic']](spec)
    more = {'batch_sampler': in_order} if spec['in_order'] else {}
    trainer(
        model=with_dropout(model, spec),
        args=args(**arguments(spec, folder), **more),
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=loss,
        callbacks=[clock],
    ).train()
    model.save_pretrained(spec['save'])
    return []


def in_order(dataset: Any, batch_size: int, **others: Any) -> Any:
    """Returns batches of consecutive examples."""
    from sentence_transformers.base.sampler import DefaultBatchSampler

    return DefaultBatchSampler(range(len(dataset)), batch_size, **others)


def cosine(spec: dict) -> tuple[Any, ...]:
    """Returns a model of vectors, the loss, the trainer and arguments."""
    import sentence_transformers as st
    from sentence_transformers import losses

    model = st.SentenceTransformer(spec['source'], device='cpu')
    model.max_seq_length = spec['seq_len']
    loss = losses.MultipleNegativesRankingLoss(
        model, scale=1 / spec['temperature']
    )
    return (
        model, loss, st.SentenceTransformerTrainer,
        st.SentenceTransformerTrainingArguments,
    )  # fmt: skip


def late(spec: dict) -> tuple[Any, ...]:
    """Returns a model of late interaction; as of `cosine`."""
    import string

    import sentence_transformers as st
    from sentence_transformers.base import modules
    from sentence_transformers.multi_vector_encoder import losses
    from sentence_transformers.multi_vector_encoder.modules import (
        MultiVectorMask,
    )

    tokens = 'token_embeddings'
    encoder = modules.Transformer(
        spec['source'], query_length=spec['query_len'],
        document_length=spec['seq_len'],
    )  # fmt: skip
    width = encoder.get_word_embedding_dimension()
    model = st.MultiVectorEncoder(
        modules=[
            encoder,
            modules.Dense(
                width, 128, bias=False, activation_function=None,
                module_input_name=tokens,
            ),
            MultiVectorMask(list(string.punctuation)),
            modules.Normalize(module_input_name=tokens),
        ],
        device='cpu',
    )  # fmt: skip
    loss = losses.MultiVectorMultipleNegativesRankingLoss(
        model, scale=1 / spec['temperature']
    )
    return (
        model, loss, st.MultiVectorEncoderTrainer,
        st.MultiVectorEncoderTrainingArguments,
    )  # fmt: skip


def lexical(spec: dict) -> tuple[Any, ...]:
    """Returns a model of lexical weights; as of `cosine`."""
    import sentence_transformers as st
    from sentence_transformers.sparse_encoder import losses
    from sentence_transformers.sparse_encoder.modules import (
        MLMTransformer,
        SpladePooling,
    )

    encoder = MLMTransformer(
        spec['source'], max_seq_length=spec['seq_len'],
    )  # fmt: skip
    model = st.SparseEncoder(
        modules=[encoder, SpladePooling('max')], device='cpu'
    )
    queries, passages = spec['flops']
    loss = losses.SpladeLoss(
        model,
        losses.SparseMultipleNegativesRankingLoss(
            model, scale=1 / spec['temperature']
        ),
        document_regularizer_weight=passages,
        query_regularizer_weight=queries,
    )
    return (
        model, loss, st.SparseEncoderTrainer, st.SparseEncoderTrainingArguments
    )


def cross(spec: dict) -> tuple[Any, ...]:
    """Returns a model of encoded pairs; as of `cosine`."""
    import sentence_transformers as st
    from sentence_transformers.cross_encoder import losses

    model = st.CrossEncoder(
        spec['source'], num_labels=1, max_length=spec['seq_len'], device='cpu'
    )
    loss = losses.MultipleNegativesRankingLoss(
        model, num_negatives=4, scale=1 / spec['temperature'],
        activation_fn=torch.nn.Identity(),
    )  # fmt: skip
    return (
        model, loss, st.CrossEncoderTrainer, st.CrossEncoderTrainingArguments
    )


CRITICS = {'cosine': cosine, 'late': late, 'lexical': lexical, 'cross': cross}


def main(spec: dict) -> dict[str, Any]:
    """Trains; returns the content of OUTPUT."""
    torch.set_num_threads(spec['threads'])
    transformers.set_seed(spec['seed'])
    clock = ClockCallback()
    train = {
        'labels': train_labels, 'words': train_words, 'pairs': train_pairs,
    }[spec['of']]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        scores = train(spec, folder, clock)
    return {'scores': scores, 'seconds': np.diff(clock.ends).tolist()}


if __name__ == '__main__':
    with open(sys.argv[1]) as file:
        output = main(json.load(file))
    with open(sys.argv[2], 'w') as file:
        json.dump(output, file)
