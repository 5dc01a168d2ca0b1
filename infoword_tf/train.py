r"""Trains rows of the table: raw text in, a workdir out.

    python -m infoword_tf.train --corpus='text:books/*.txt' \
        --objectives=bert_nce --size=mini --steps=20000 --workdir=runs/books
    python -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags

The same command resumes a run that was stopped (on a CPU bit for bit).
"""

if __name__ == 'infoword_tf.train':  # it would hide the function
    raise ImportError(
        'infoword_tf.train is a command, and in Python a function: '
        'import infoword_tf, and call infoword_tf.train(...)'
    )

from infoword_tf import commands
from infoword_tf.training.begin import train

if __name__ == '__main__':
    commands.start(train)
