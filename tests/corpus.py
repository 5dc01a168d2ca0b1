"""Real English that every Python brings along, as a corpus of text files."""

import pathlib
import pydoc_data.topics

HELDOUT_EVERY = 8


def write_topics(folder: pathlib.Path) -> tuple[str, str]:
    """Writes the language reference's topics as text.

    One paragraph a line, a blank line between topics.

    Returns:
        --corpus and --heldout.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topics = pydoc_data.topics.topics
    parts = {'train': [], 'heldout': []}
    for number, name in enumerate(sorted(topics)):
        lines = parts['train' if number % HELDOUT_EVERY else 'heldout']
        for paragraph in topics[name].split('\n\n'):
            words = paragraph.split()
            if len(words) > 5:
                lines.append(' '.join(words))
        lines.append('')
    for part, lines in parts.items():
        path = folder / f'{part}.txt'
        path.write_text('\n'.join(lines), encoding='utf-8')
    return f'text:{folder}/train.txt', f'{folder}/heldout.txt'
