"""Small text in several languages, and what of it says the same."""

import itertools
import pathlib

import numpy as np

# By language: who, does what, to what, when; {} of a sentence in its order.
WORDS = {
    'en': (
        ['the teacher', 'a child', 'my sister', 'our neighbour', 'the king'],
        ['sees', 'buys', 'paints', 'loves', 'forgets'],
        ['the house', 'a horse', 'the old book', 'bread', 'the garden'],
        ['today', 'every morning', 'in winter', 'at night'],
        '{0} {1} {2} {3}.',
    ),
    'de': (
        ['der Lehrer', 'ein Kind', 'meine Schwester', 'unser Nachbar',
         'der König'],
        ['sieht', 'kauft', 'malt', 'liebt', 'vergisst'],
        ['das Haus', 'ein Pferd', 'das alte Buch', 'Brot', 'den Garten'],
        ['heute', 'jeden Morgen', 'im Winter', 'nachts'],
        '{3} {1} {0} {2}.',
    ),
    'fr': (
        ['le professeur', 'un enfant', 'ma sœur', 'notre voisin', 'le roi'],
        ['voit', 'achète', 'peint', 'aime', 'oublie'],
        ['la maison', 'un cheval', 'le vieux livre', 'du pain', 'le jardin'],
        ["aujourd'hui", 'chaque matin', 'en hiver', 'la nuit'],
        '{3}, {0} {1} {2}.',
    ),
}  # fmt: skip


def sentences(language: str) -> list[str]:
    """500 sentences, the same in each language, in one random order."""
    *parts, form = WORDS[language]
    every = [form.format(*words) for words in itertools.product(*parts)]
    order = np.random.default_rng(0).permutation(len(every))
    return [every[i][0].upper() + every[i][1:] for i in order]


def write(folder: pathlib.Path) -> None:
    """text.LL of all languages, and two.{de,en}, three.{en,fr}, aligned.

    The text has documents of five sentences, de more of them than fr; what is
    aligned are other sentences than the text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for language, size in (('en', 350), ('de', 250), ('fr', 100)):
        texts = sentences(language)[:size]
        lines = [
            line + ('\n' if i % 5 == 4 else '') for i, line in enumerate(texts)
        ]
        (folder / f'text.{language}').write_text('\n'.join(lines) + '\n')
    for name, two in (('two', 'de en'), ('three', 'en fr')):
        for language in two.split():
            lines = sentences(language)[350:]
            (folder / f'{name}.{language}').write_text('\n'.join(lines) + '\n')
