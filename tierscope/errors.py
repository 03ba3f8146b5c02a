"""The ways in which tierscope itself can fail; each carries one sentence for the person at the keyboard.

A failed *request* is data and never an exception. These are for failures of ours or of our input.
"""


class BadInputError(Exception):
    """Input that cannot be used: the sentence names the place, the value and what is allowed. Exit code 2."""


class RunFailedError(Exception):
    """A run that started and could not do its job, e.g. nothing answered. Exit code 3."""


class ToldError(Exception):
    """A child process failed and has said why itself; only its exit ``code`` is passed on."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
