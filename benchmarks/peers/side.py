"""One side of a comparison, alone in its process: texts in, seconds out.

    python benchmarks/peers/side.py SIDE PATH [THREADS [INTER]]

Each line of standard input is {"texts": [...]}, each line of standard output
{"seconds": ..., "amount": of texts, "vectors": [first, last]}; with "clients"
so many threads ask for one text after the other, and the answer is `at_once`'s.
The first line, {}, says that the side is ready. Peers run in an environment
without the project, so it is imported by our sides only.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['TOKENIZERS_PARALLELISM'] = 'true'

Encode = Callable[[Sequence[str], int], np.ndarray]
BATCH_SIZE = 32  # of sides without a batch size


def encode(path: str, threads: int, precision: str = 'float32') -> Encode:
    """Returns `Loaded.encode` of a workdir."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    import infoword_tf

    loaded = infoword_tf.load(path, precision)
    return lambda texts, _: loaded.encode(texts, progress=False)


def savedmodel(path: str, threads: int, inter: int = 0) -> Encode:
    """Returns the signature `embed` of an export, in a session as of a server.

    A list of texts is one call. `inter` threads run operations; 0: one for each
    core, -1: the calling thread.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        session = v1.Session(
            config=v1.ConfigProto(
                intra_op_parallelism_threads=threads,
                inter_op_parallelism_threads=inter,
            )
        )
        signature = v1.saved_model.load(session, ['serve'], path).signature_def[
            'embed'
        ]
    run = session.make_callable(
        signature.outputs['embeddings'].name, [signature.inputs['texts'].name]
    )
    return lambda texts, _: run(np.array(texts, object))


def frozen(path: str, threads: int, inter: int = 0) -> Encode:
    """Returns `savedmodel` with weights that oneDNN reorders once."""
    os.environ['TF_ENABLE_ONEDNN_OPTS'] = '1'
    os.environ['TF_ONEDNN_ASSUME_FROZEN_WEIGHTS'] = '1'
    return savedmodel(path, threads, inter)


def sentence_transformers(
    path: str,
    threads: int,
    precision: str = 'float32',
    compiled: bool = False,
) -> Encode:
    """Returns `SentenceTransformer.encode` of a folder."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(
        path,
        device='cpu',
        local_files_only=True,
        model_kwargs={'dtype': getattr(torch, precision)},
    )
    if compiled:
        core = model[0].auto_model
        core.forward = torch.compile(core.forward, dynamic=True)
    return lambda texts, batch_size: model.encode(
        list(texts), batch_size=batch_size, show_progress_bar=False
    )


def onnxruntime(path: str, threads: int, small: bool = False) -> Encode:
    """Returns a float32 graph with BERT's fusions, `tokenizers` and a mean.

    PATH is a sentence-transformers folder; the graph is made in a temporary
    folder. `small` makes weights, and what is multiplied by them, 8 bits.
    """
    import pathlib
    import tempfile

    import onnxruntime as runtime
    import torch
    from onnxruntime.transformers import optimizer
    from tokenizers import Tokenizer
    from transformers import AutoModel

    folder = pathlib.Path(path)
    model = AutoModel.from_pretrained(folder, attn_implementation='eager')
    config = model.config
    names = ['input_ids', 'attention_mask', 'token_type_ids']

    class LastStates(torch.nn.Module):
        """The last layer alone."""

        def __init__(self):
            super().__init__()
            self.model = model.eval()

        def forward(self, ids: Any, mask: Any, segments: Any) -> Any:
            """Computes states [B, T, D] of inputs [B, T]."""
            return self.model(
                input_ids=ids, attention_mask=mask, token_type_ids=segments
            )[0]

    ones = torch.ones(2, 16, dtype=torch.long)
    with tempfile.TemporaryDirectory() as graphs:
        plain, fused = f'{graphs}/plain.onnx', f'{graphs}/fused.onnx'
        torch.onnx.export(
            LastStates(),
            (ones, ones, ones * 0),
            plain,
            input_names=names,
            output_names=['states'],
            dynamic_axes={n: {0: 'b', 1: 't'} for n in (*names, 'states')},
            opset_version=17,
            dynamo=False,
        )
        optimizer.optimize_model(
            plain,
            model_type='bert',
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            opt_level=1,
            use_gpu=False,
        ).save_model_to_file(fused)
        if small:
            import onnx
            from onnxruntime import quantization

            quantization.quantize_dynamic(
                fused,
                f'{graphs}/small.onnx',
                per_channel=True,
                # What fused operations return is not inferred.
                extra_options={'DefaultTensorType': onnx.TensorProto.FLOAT},
            )
            fused = f'{graphs}/small.onnx'
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = runtime.InferenceSession(
            fused, options, providers=['CPUExecutionProvider']
        )
    tokenizer = Tokenizer.from_file(str(folder / 'tokenizer.json'))
    limits = json.loads((folder / 'sentence_bert_config.json').read_text())
    tokenizer.enable_truncation(limits['max_seq_length'])
    tokenizer.enable_padding()

    def batch(texts: Sequence[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(list(texts))
        ids = np.array([x.ids for x in encodings], np.int64)
        mask = np.array([x.attention_mask for x in encodings], np.int64)
        inputs = dict(zip(names, (ids, mask, ids * 0), strict=True))
        (states,) = session.run(None, inputs)
        shares = mask / mask.sum(1, keepdims=True)
        return np.matmul(shares[:, None].astype(np.float32), states)[:, 0]

    def encode_all(texts: Sequence[str], batch_size: int) -> np.ndarray:
        order = np.argsort([len(text) for text in texts], kind='stable')[::-1]
        vectors = np.empty((len(texts), config.hidden_size), np.float32)
        for begin in range(0, len(texts), batch_size):
            numbers = order[begin : begin + batch_size]
            vectors[numbers] = batch([texts[i] for i in numbers])
        return vectors

    return encode_all


SIDES: dict[str, Callable[[str, int], Encode]] = {
    'encode': encode,
    'encode-bfloat16': lambda path, threads: (
        encode(path, threads, 'mixed_bfloat16')
    ),
    'savedmodel': savedmodel,
    'savedmodel-frozen': frozen,
    'sentence-transformers': sentence_transformers,
    'sentence-transformers-bfloat16': lambda path, threads: (
        sentence_transformers(path, threads, 'bfloat16')
    ),
    'sentence-transformers, compiled': lambda path, threads: (
        sentence_transformers(path, threads, compiled=True)
    ),
    'onnxruntime': onnxruntime,
    'onnxruntime-int8': lambda path, threads: onnxruntime(path, threads, True),
}


class Batched:
    """A batching server of requests.

    A thread takes all waiting requests, at most MOST, and answers with one
    call.
    """

    MOST = 256

    def __init__(self, run: Encode, threads: int):
        """Starts threads that answer requests with `run`."""
        self._run = run
        self._waiting: queue.SimpleQueue = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._take, daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __call__(self, texts: Sequence[str], _: int) -> None:
        """Returns when the texts are answered."""
        done = threading.Event()
        self._waiting.put((texts, done))
        done.wait()

    def _take(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            with contextlib.suppress(queue.Empty):
                while len(batch) < self.MOST:
                    batch.append(self._waiting.get_nowait())
            ends = [each for each in batch if each is None]
            batch = [each for each in batch if each is not None]
            for _ in ends:  # of another thread
                self._waiting.put(None)
            self._run([text for texts, _ in batch for text in texts], 32)
            for _, done in batch:
                done.set()

    def close(self) -> None:
        """Ends the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()


def at_once(
    run: Encode,
    texts: Sequence[str],
    clients: int,
    seconds: float,
    batchers: int = 0,
) -> dict[str, Any]:
    """Runs clients that ask for one text after the other.

    Args:
        run: answers a list of texts.
        texts: texts of the requests, in turn.
        clients: number of clients.
        seconds: time of the measurement, after a fifth of that to warm up.
        batchers: threads that batch requests; 0: each client calls `run`.

    Returns:
        'seconds', the 'amount' of answers, the seconds that clients 'waited'
        for each, and 'processor', the mean of its processor seconds over all
        threads.
    """
    answer = Batched(run, batchers) if batchers else run
    begin = time.perf_counter() + seconds / 5
    waited: list[list[float]] = [[] for _ in range(clients)]

    processor: list[float] = []  # before the first that counts

    def ask(client: int) -> None:
        number, now = client, 0.0
        while not waited[client] or now < begin + seconds:
            now = time.perf_counter()
            if now >= begin and not processor:
                processor.append(time.process_time())
            answer([texts[number % len(texts)]], 32)
            number += clients
            if now >= begin:
                waited[client].append(time.perf_counter() - now)

    threads = [
        threading.Thread(target=ask, args=(client,))
        for client in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    spent = time.process_time() - processor[0]
    if batchers:
        answer.close()
    every = [s for client in waited for s in client]
    return {
        'seconds': took, 'amount': len(every), 'waited': every,
        'processor': spent / len(every),
    }  # fmt: skip


def answer(run: Encode, request: dict[str, Any]) -> dict[str, Any]:
    """Answers a request."""
    if request.get('clients'):
        return at_once(run, **request)
    began = time.perf_counter()
    vectors = run(request['texts'], BATCH_SIZE)
    return {
        'seconds': time.perf_counter() - began,
        'amount': len(request['texts']),
        'vectors': np.asarray(vectors, np.float32)[[0, -1]].tolist(),
    }


if __name__ == '__main__':
    # Standard output has answers only; output of libraries goes to the errors.
    with contextlib.redirect_stdout(sys.stderr):
        numbers = [int(number) for number in sys.argv[3:] or [2]]
        run = SIDES[sys.argv[1]](sys.argv[2], *numbers)
    print('{}', flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(run, json.loads(line))), flush=True)
