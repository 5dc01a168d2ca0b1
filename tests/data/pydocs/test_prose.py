import textwrap

from absl.testing import parameterized

from infoword_tf.data.pydocs.prose import prose

NUMPY = """
    Compute the norm of ``x``.

    This function is able to return one of *eight* norms [1]_, depending
    on the value of the ``ord`` parameter. For example:

    Parameters
    ----------
    x : array_like
        Input array. It must not be empty, for that has no norm at all.

        A second paragraph of the description of x is no prose either.
    ord : {int, str}, optional
        Order of the norm.

    Returns
    -------
    n : float
        Norm of the matrix or vector that was given.

    See Also
    --------
    scipy.linalg.norm : Similar function in SciPy.

    Notes
    -----
    For values below 1 the result is **not** a mathematical norm.

    .. math:: \\sum_i x_i

    The sum was described by :func:`~scipy.linalg.norm` and `Golub
    <https://golub.org>`_ in their book.

    References
    ----------
    .. [1] G. H. Golub and C. F. Van Loan, *Matrix Computations*.

    Examples
    --------
    >>> norm(a)
    7.745966692414834
    The output goes on here.

    The second example is run along an axis.
    """

GOOGLE = """Creates a dataset from a list of files. It is lazy.

    The files are read in the order of their names, which is
    why the order never changes.

    Note:
      A file is opened when it is needed.

    ```python
    dataset = create(files)

    print("This is code. It must not be kept at all.")
    ```

    Args:
      files: A list of strings. Every one must be the path of a file.

        More about the files, still in the section of the arguments.
      size: The number of elements to read at a time, which is 8 by default.

    Returns:
      A `Dataset`. It has as many elements as there are lines.

    Raises:
      ValueError: If there is no file.

    Use `tf.data` and [the guide](https://example.com/a_b) to learn more."""

SPHINX = """
    Sends a :class:`~requests.Request` and returns its :class:`Response`

    :param url: the address to which the request of this session is sent.
        It goes on here.
    :type url: str
    :returns: the response of the server, never None.

    Usage::

        session.send("https://example.com")
        # A comment. It is not prose.

    The following is a warning.

    .. warning::
        Never send a password in this way. It would be read.

    :meth:`close` must be called when it is no longer needed.
    """

LISTS = """Choose a strategy for the run.

    - `one`: a single device, which is the default for all programs.
    - `many`: all devices.

    There are some things to know about it.

    * A device is never used by two programs at a time,
      because its memory is not shared.
    * Fast.

    term
        The definition of the term is left out.

    And then

        an indented block. It is a quotation or it is code.

    1. The first step is to read the files.
    2. The second step is to write them.

    +------+------+
    | This | is a table of words. |
    +------+------+

    ====  =====================
    name  what it is good for.
    ====  =====================

    Title
    ~~~~~
    a + b = c + d * (e - f) / {g: h} is not English.

    kwarg -- it is not kept.
    Das ist ein Satz, aber kein Englischer Satz.
    """


class ProseTest(parameterized.TestCase):
    maxDiff = None

    @parameterized.named_parameters(
        (
            'numpy',
            NUMPY,
            """\
            Compute the norm of x.
            This function is able to return one of eight norms, depending on the value of the ord parameter.
            For values below 1 the result is not a mathematical norm.
            The sum was described by norm and Golub in their book.
            The second example is run along an axis.""",  # noqa: E501
        ),
        (
            'google',
            GOOGLE,
            """\
            Creates a dataset from a list of files.
            It is lazy.
            The files are read in the order of their names, which is why the order never changes.
            A file is opened when it is needed.
            Use tf.data and the guide to learn more.""",  # noqa: E501
        ),
        (
            'sphinx',
            SPHINX,
            """\
            Sends a Request and returns its Response
            The following is a warning.
            close must be called when it is no longer needed.""",
        ),
        (
            'lists_and_tables',
            LISTS,
            """\
            Choose a strategy for the run.
            There are some things to know about it.
            A device is never used by two programs at a time, because its memory is not shared.
            The first step is to read the files.
            The second step is to write them.""",  # noqa: E501
        ),
    )
    def test_style(self, docstring, expected):
        self.assertEqual(
            prose(docstring), textwrap.dedent(expected).split('\n')
        )

    @parameterized.parameters(
        ('', []),
        ('   \n  ', []),
        ('norm(x, y) -> float\n\nReturn the norm.', []),
        (
            'norm(x, y) -> float\n\nReturn the norm of all the values.',
            ['Return the norm of all the values.'],
        ),
        # A summary line that was broken by width, its rest indented.
        (
            'Return the sum of all\n        values here.\n\n    Not the mean'
            ' of any of them.',
            [
                'Return the sum of all values here.',
                'Not the mean of any of them.',
            ],
        ),
        # A fence that is never closed.
        ('Draw the line.\n\n```\nIt is code. It is.', ['Draw the line.']),
        # Parameters and stars that are not markup.
        (
            'Call it with *args and **kwargs of the caller.',
            ['Call it with *args and **kwargs of the caller.'],
        ),
        ('It is bad \ud800 to have halves.', []),
    )
    def test_case(self, docstring, expected):
        self.assertEqual(prose(docstring), expected)
