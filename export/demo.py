"""A local page to try an export on: a tab for each signature.

    python -m export.demo --model=models/books/1
    python -m export.demo --model=models/books/1 --corpus='text:books/*.txt'
    python -m export.demo --model=models/books/1 --index=news --port=9000

Flags of `export.search` add a tab to search. `TABS` lists the others.
"""

import dataclasses
import pathlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from infoword_tf import commands, errors, lazy
from infoword_tf.choices import flag
from infoword_tf.config import read_exported

from . import search

LOCAL = ['127.0.0.1', 'localhost']  # what a browser calls this machine
Outputs = Mapping[str, np.ndarray]  # by name, and the inputs


@dataclasses.dataclass(frozen=True)
class DemoChoices(search.SearchChoices):
    """The choices of the command."""

    host: str = flag(LOCAL[0], 'The address; any but that of this machine lets '
                     'everybody in who reaches it.')  # fmt: skip
    port: int | None = flag(None, 'By default the first that is free from 7860 '
                            'on.', at_least=1, at_most=65535)  # fmt: skip


def likeliest(names: str, outputs: Outputs, first: str = '') -> list[tuple]:
    """Lists names [1, n] with probabilities, the likeliest first."""
    log = 'probabilities' not in outputs
    (shares,) = np.exp(outputs['scores']) if log else outputs['probabilities']
    return [(first + outputs[names][0][i].decode('utf-8', 'replace'),
             f'{shares[i]:.1%}')
            for i in np.argsort(-shares, kind='stable')[:10]]  # fmt: skip


def blanks(outputs: Outputs) -> list[tuple]:
    """Lists the likeliest tokens of every blank."""
    lines = []
    for i in range(min(outputs['count'][0], outputs['tokens'].shape[1])):
        blank = {name: outputs[name][:, i] for name in ('tokens', 'scores')}
        lines += likeliest('tokens', blank, f'{i + 1}: ')
    return lines or [('Write [MASK] where a token is missing.', '')]


def likeness(outputs: Outputs) -> list[tuple]:
    """Lists measures of how alike the vectors of two texts are."""
    a, b = outputs['embeddings']
    cosine = a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)
    return [('cosine', f'{cosine:.4f}'), ('inner product', f'{a @ b:.4f}')]


def number(outputs: Outputs) -> list[tuple]:
    """Lists the number of a text."""
    return [('', f'{outputs["score"][0]:.4g}')]


def words(outputs: Outputs) -> list[tuple]:
    """Splits a text at labelled spans, with labels."""
    raw, end, parts = outputs['sent'][0], 0, []
    names = 'begins', 'ends', 'labels'
    spans = zip(*(outputs[name][0] for name in names), strict=True)
    for begin, stop, label in list(spans)[: outputs['count'][0]]:
        parts += [(raw[end:begin], None), (raw[begin:stop], label.decode())]
        end = stop
    parts.append((raw[end:], None))
    return [(part.decode('utf-8', 'replace'), x) for part, x in parts if part]


def terms(outputs: Outputs) -> list[tuple]:
    """Lists tokens with a weight, most first."""
    pairs = zip(outputs['tokens'][0], outputs['weights'][0], strict=True)
    return [(x.decode('utf-8', 'replace'), f'{w:.2f}') for x, w in pairs][:50]


# A title, inputs by field, and a function from outputs to lines.
Tab = tuple[str, dict[str, str], Callable[[Outputs], list[tuple]]]
TEXT, PAIR = {'Text': 'texts'}, {'Text': 'texts', 'Second text': 'pairs'}
# By signature.
TABS: dict[str, Tab] = {
    'fill_mask': ('Blanks', {'Text with [MASK] in it': 'texts'}, blanks),
    'next_token': ('Next words', {'How a text begins': 'texts'},
                   partial(likeliest, 'tokens')),
    'classify': ('Classes', TEXT, partial(likeliest, 'labels')),
    'classify_pairs': ('Classes of pairs', PAIR, partial(likeliest, 'labels')),
    'regress': ('Number', TEXT, number),
    'regress_pairs': ('Number of pairs', PAIR, number),
    'score_pairs': ('Relevance', {'Query': 'texts', 'Passage': 'pairs'},
                    number),
    'choose': ('Choice', {'Text': 'texts', 'Choices, a line each': 'choices'},
               partial(likeliest, 'choices')),
    'answer': ('Answers', {'Question': 'texts', 'Text': 'pairs'},
               partial(likeliest, 'texts')),
    'tag': ('Words', TEXT, words),
    'embed_sparse': ('Terms', TEXT, terms),
    'embed': ('Likeness', {'First text': 'texts', 'Second text': 'texts'},
              likeness),
}  # fmt: skip


def ask(name: str, signature: Any, *texts: str) -> list[tuple]:
    """Answers the texts in the fields of a tab, in lines of a table."""
    _, fields, lines = TABS[name]
    inputs: dict[str, list] = {}
    for key, text in zip(fields.values(), texts, strict=True):
        value = text.splitlines() if key == 'choices' else text
        inputs.setdefault(key, []).append(value)
    tensors = {k: lazy.tensorflow().constant(v) for k, v in inputs.items()}
    tensors |= {'sent': tensors['texts'], **signature(**tensors)}
    return lines({k: v.numpy() for k, v in tensors.items()})


def page(choices: DemoChoices, signatures: Any, searched: Any) -> Any:
    """Builds Gradio's page; `searched`: a `Search`, or None."""
    import gradio as gr

    def find(query: str, words: float, count: int) -> list[tuple]:
        results = searched(query, words, count) if query.strip() else []
        return [(f'{x:.3f}', p.source, p.text) for x, p in results]

    form = partial(gr.Interface, flagging_mode='never', analytics_enabled=False)
    tabs = {}
    if searched:
        tabs['Search'] = form(find, [
            gr.Textbox(label='Question'),
            gr.Slider(0, 1, choices.words, label='Meaning ... words', step=0.1),
            gr.Slider(1, 50, choices.top_k, label='Answers', step=1),
        ], gr.Dataframe(headers=['score', 'source', 'text'], wrap=True,
                        column_widths=['15%', '25%', '60%']),
            api_name='search')  # fmt: skip
    for name, (title, fields, _) in TABS.items():
        if name in signatures:
            boxes = [gr.Textbox(label=field, lines=3) for field in fields]
            shown = gr.Dataframe(headers=[title, ''], wrap=True)
            if name == 'tag':
                shown = gr.HighlightedText(show_legend=True)
            tabs[title] = form(partial(ask, name, signatures[name]), boxes,
                               shown, api_name=name)  # fmt: skip
    return gr.TabbedInterface([*tabs.values()], [*tabs], title=choices.model,
                              analytics_enabled=False)  # fmt: skip


@commands.takes(DemoChoices)
def run(choices: DemoChoices, chosen: Mapping[str, Any]) -> None:
    """Serves the page until Ctrl-C."""
    commands.require(vars(choices), model='an exported model, DIR/1')
    read_exported(pathlib.Path(choices.model))
    searches = chosen.keys() - {'model', 'host', 'port'}
    opened = search.prepare(choices, chosen) if searches else None
    try:
        socket.create_server((choices.host, choices.port or 0)).close()
    except OSError as error:
        raise errors.UsageError(
            'address_refused',
            f'--host={choices.host} --port={choices.port}: {error.strerror}; '
            'name another, or leave out --port',
        ) from None
    commands.import_extra('gradio', 'demo', 'export.demo')
    from starlette.middleware import Middleware, trustedhost

    model = lazy.tensorflow().saved_model.load(choices.model)
    demo = page(choices, model.signatures, opened and opened(model))
    # A page of another server may send its reader here under that name.
    hosts = LOCAL if choices.host in LOCAL else ['*']
    only = Middleware(trustedhost.TrustedHostMiddleware, allowed_hosts=hosts)
    demo.launch(
        server_name=choices.host, server_port=choices.port, share=False,
        quiet=True, ssr_mode=False, prevent_thread_lock=True, footer_links=[],
        run_history=False, app_kwargs={'middleware': [only]})
    print(f'{demo.local_url}  (Ctrl-C ends it)', flush=True)
    demo.block_thread()


if __name__ == '__main__':
    commands.start(run)
