"""Files of SQuAD as tests want them, and what reads them."""

import functools
import json
import string

from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.template import Template
from infoword_tf.text.wordpiece import WordPieceTokenizer

SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
WORDS = ('who', 'what', 'saw', 'the', 'cat', 'dog', 'on', 'mat', 'cafe')


def question(name, text, *answers, **more):
    """Answers are (text, first character)."""
    choices = [{'text': t, 'answer_start': start} for t, start in answers]
    return {'id': name, 'question': text, 'answers': choices, **more}


def contents(*paragraphs):
    """Paragraphs are (context, questions); an article each."""
    return {
        'version': '1.1',
        'data': [
            {'title': 'x', 'paragraphs': [{'context': context, 'qas': qas}]}
            for context, *qas in paragraphs
        ],
    }


def write(path, *paragraphs):
    path.write_text(json.dumps(contents(*paragraphs)))
    return path


def asked(context, answer, text='who saw the cat', name='q'):
    """A question whose answer is the first of its kind in a context."""
    return question(name, text, (answer, context.index(answer)))


@functools.cache
def tokenizer():
    """Some words, and letters for all others."""
    letters = string.ascii_lowercase + string.digits + '.,!'
    return WordPieceTokenizer(
        [*SPECIALS, *WORDS, *letters, *(f'##{c}' for c in letters)]
    )


def template(layout='bert', pieces=None):
    """Returns what features want of a model."""
    return Template(pieces or tokenizer(), LAYOUTS[layout])
