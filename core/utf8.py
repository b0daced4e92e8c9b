"""Text from outside that need not be UTF-8: file names and arguments of a command.

Python keeps each byte that is not UTF-8 as a lone surrogate, which neither SQLite nor JSON takes.
"""


def as_utf8(text: str) -> str:
    r"""Return *text* with every byte that is not UTF-8 written out, such as ``\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
