"""Packaging: one package, `infoword_tf`, and one program, `infoword`.

The wheel has tasks/ and export/ as `infoword_tf.tasks` and `infoword_tf.export`
with flagfiles and settings of servers, so that no clone is needed; their files
import each other relatively. An editable install is the path of the checkout,
where they stay `tasks` and `export`. `constraints.txt` pins the exact versions
of the closure.
"""
import setuptools

# Beside the library, for the commands of tasks/: a baseline of retrieval, what
# tensorflow-datasets needs to prepare a data set and does not ask for, and
# logistic regression.
TASKS = ['PyStemmer', 'bm25s', 'importlib_resources', 'scikit-learn']
# Prepares text on any runner of Beam. It excludes versions of pillow, protobuf,
# pyarrow and python-dateutil that constraints.txt has: an environment of its
# own, which `make beam-check` makes and runs the tests of.
BEAM = ['apache-beam==2.77.*']
# The page of export.demo. Gradio excludes the version of pillow that
# constraints.txt has: an environment of its own, which `make demo` makes.
DEMO = ['gradio==6.31.*']
# Runs what export.litert has written: all that a phone needs, and the tests.
LITERT = ['ai-edge-litert', 'numpy']
# Runs notebooks/, in an environment of its own: `make notebooks`.
NOTEBOOKS = ['ipykernel', 'nbclient', 'nbformat', 'pillow', *TASKS]

setuptools.setup(
    name='infoword_tf',
    version='0.1.0',
    description='A Keras zoo in which every way of learning language '
    'representations is InfoNCE over two views of a text.',
    packages=[
        *setuptools.find_packages(include=['infoword_tf*']),
        'infoword_tf.tasks', 'infoword_tf.export', 'infoword_tf.export.serving',
    ],  # fmt: skip
    package_dir={'infoword_tf.tasks': 'tasks', 'infoword_tf.export': 'export'},
    package_data={
        'infoword_tf': ['py.typed'],
        'infoword_tf.tasks': ['flags/*.flags'],
        'infoword_tf.export': ['*.md', '*.toml'],
        'infoword_tf.export.serving': ['*'],
    },
    entry_points={
        'console_scripts': ['infoword = infoword_tf.__main__:main'],
    },
    python_requires='>=3.11,<3.13',
    # By a path, not by a finder: from the folder above a checkout Python would
    # take the checkout itself for a package without __init__.py.
    options={'editable_wheel': {'mode': 'compat'}},
    install_requires=[
        'absl-py',
        'huggingface_hub',
        'keras==3.15.*',
        'matplotlib',
        'numpy',
        'packaging',
        'pyarrow',
        'safetensors',
        'scipy',
        'sentencepiece',
        'tensorflow==2.20.*',
        'tensorflow-datasets',
        'tensorflow-text==2.20.*',
        'tf-models-official==2.20.*',
        'tokenizers',
        'tqdm',
    ],
    extras_require={
        'beam': BEAM,
        'demo': DEMO,
        'litert': LITERT,
        'notebooks': NOTEBOOKS,
        # Other people's programs, for `make oracles`: what tests expect.
        'oracles': [
            'numpy', 'peft', 'pytrec-eval-terrier', 'sentence-transformers',
            'torch', 'transformers',
        ],  # fmt: skip
        'tasks': TASKS,
        'test': [
            *LITERT, *TASKS, 'faiss-cpu', 'hypothesis', 'jax', 'mypy',
            'psutil', 'pytest', 'pytest-xdist', 'ruff',
        ],  # fmt: skip
    },
)
