"""A local page to try an export on: a tab for each thing that it can do.

    python -m export.demo --model=models/books/1
    python -m export.demo --model=models/books/1 --corpus='text:books/*.txt'
    python -m export.demo --model=models/books/1 --index=news --port=9000

Flags of `export.search` add its search; all else is by signature, see `TABS`.
"""

import dataclasses
import pathlib
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from export import search
from infoword_tf import commands, errors, lazy
from infoword_tf.choices import flag
from infoword_tf.config import read_exported

LOCAL = ['127.0.0.1', 'localhost']  # what a browser calls this machine
Outputs = Mapping[str, np.ndarray]  # by name, and the inputs


@dataclasses.dataclass(frozen=True)
class Choices(search.Choices):
    """All that the command may choose."""

    host: str = flag(LOCAL[0], 'The address; any but that of this machine lets '
                     'everybody in who reaches it.')  # fmt: skip
    port: int | None = flag(None, 'By default the first that is free from 7860 '
                            'on.', at_least=1, at_most=65535)  # fmt: skip


def likeliest(names: str, of: Outputs, first: str = '') -> list[tuple]:
    """Gives rows of names [1, K] and their shares, the likeliest first."""
    log = 'probabilities' not in of
    (shares,) = np.exp(of['scores']) if log else of['probabilities']
    return [(first + of[names][0][i].decode('utf-8', 'replace'),
             f'{shares[i]:.1%}')
            for i in np.argsort(-shares, kind='stable')[:10]]  # fmt: skip


def blanks(of: Outputs) -> list[tuple]:
    """Gives rows of the likeliest tokens of every blank."""
    rows = []
    for i in range(min(of['count'][0], of['tokens'].shape[1])):
        blank = {name: of[name][:, i] for name in ('tokens', 'scores')}
        rows += likeliest('tokens', blank, f'{i + 1}: ')
    return rows or [('Write [MASK] where a token is missing.', '')]


def likeness(of: Outputs) -> list[tuple]:
    """Gives rows of how alike the vectors of two texts are."""
    a, b = of['embeddings']
    cosine = a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)
    return [('cosine', f'{cosine:.4f}'), ('inner product', f'{a @ b:.4f}')]


TEXT, PAIR = {'Text': 'texts'}, {'Text': 'texts', 'Second text': 'pairs'}
# By signature: a title; by field, the input that it goes to; what makes rows.
TABS = {
    'fill_mask': ('Blanks', {'Text with [MASK] in it': 'texts'}, blanks),
    'next_token': ('Next words', {'How a text begins': 'texts'},
                   partial(likeliest, 'tokens')),
    'classify': ('Classes', TEXT, partial(likeliest, 'labels')),
    'classify_pairs': ('Classes of pairs', PAIR, partial(likeliest, 'labels')),
    'regress': ('Number', TEXT, lambda of: [('', f'{of["score"][0]:.4g}')]),
    'regress_pairs': ('Number of pairs', PAIR,
                      lambda of: [('', f'{of["score"][0]:.4g}')]),
    'choose': ('Choice', {'Text': 'texts', 'Choices, a line each': 'choices'},
               partial(likeliest, 'choices')),
    'answer': ('Answers', {'Question': 'texts', 'Text': 'pairs'},
               partial(likeliest, 'texts')),
    'embed': ('Likeness', {'First text': 'texts', 'Second text': 'texts'},
              likeness),
}  # fmt: skip


def ask(name: str, signature: Any, *texts: str) -> list[tuple]:
    """Gives the rows of a tab for what its fields hold."""
    _, fields, rows = TABS[name]
    inputs: dict[str, list] = {}
    for key, text in zip(fields.values(), texts, strict=True):
        value = text.splitlines() if key == 'choices' else text
        inputs.setdefault(key, []).append(value)
    given = {k: lazy.tensorflow().constant(v) for k, v in inputs.items()}
    return rows({k: v.numpy() for k, v in (given | signature(**given)).items()})


def page(given: Choices, signatures: Mapping[str, Any], searched: Any) -> Any:
    """Makes Gradio's page; `searched`: an index and what embeds, or None."""
    import gradio as gr

    def find(query: str, words: float, count: int) -> list[tuple]:
        if not query.strip():
            return []
        found = search.find(query, *searched, count, words, given.oversample)
        return [(f'{x:.3f}', part.source, part.text) for x, part in found]

    form = partial(gr.Interface, flagging_mode='never', analytics_enabled=False)
    tabs, share = {}, search.HYBRID if given.hybrid else 0
    if searched:
        tabs['Search'] = form(find, [
            gr.Textbox(label='Question'),
            gr.Slider(0, 1, share, label='Meaning ... words', step=0.1),
            gr.Slider(1, 50, given.top_k, label='Answers', step=1),
        ], gr.Dataframe(headers=['score', 'source', 'text'], wrap=True,
                        column_widths=['15%', '25%', '60%']),
            api_name='search')  # fmt: skip
    for name, (title, fields, _) in TABS.items():
        if name in signatures:
            boxes = [gr.Textbox(label=field, lines=3) for field in fields]
            tabs[title] = form(partial(ask, name, signatures[name]), boxes,
                               gr.Dataframe(headers=[title, ''], wrap=True),
                               api_name=name)  # fmt: skip
    return gr.TabbedInterface([*tabs.values()], [*tabs], title=given.model,
                              analytics_enabled=False)  # fmt: skip


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Answers until Ctrl-C."""
    commands.require(vars(given), model='an exported model, DIR/1')
    read_exported(pathlib.Path(given.model))
    wanted = chosen.keys() - {'model', 'host', 'port'}
    opened = search.prepare(given, chosen) if wanted else None
    try:
        socket.create_server((given.host, given.port or 0)).close()
    except OSError as error:
        raise errors.UsageError(
            f'--host={given.host} --port={given.port}: {error.strerror}; name '
            'another, or leave out --port') from None
    commands.import_extra('gradio', 'demo', 'export.demo')
    from starlette.middleware import Middleware, trustedhost

    model = lazy.tensorflow().saved_model.load(given.model)
    made = page(given, model.signatures, opened and opened(model))
    # A page from elsewhere may send its reader here under its own name.
    hosts = LOCAL if given.host in LOCAL else ['*']
    only = Middleware(trustedhost.TrustedHostMiddleware, allowed_hosts=hosts)
    made.launch(
        server_name=given.host, server_port=given.port, share=False, quiet=True,
        ssr_mode=False, prevent_thread_lock=True, footer_links=[],
        run_history=False, app_kwargs={'middleware': [only]})
    print(f'{made.local_url}  (Ctrl-C ends it)', flush=True)
    made.block_thread()


if __name__ == '__main__':
    commands.start(run)
