"""Rows that cannot be used: counted and named, or an error with --strict.

Each reader says once, after its last row, what it has left out:
`FILE: read 8, kept 3, skipped 5: WHY: ids a, b, ...`.
"""
import logging
from typing import Sequence

from multigpu.errors import UserError

NAMED_ITEMS = 10


def name_some(items: Sequence[object], limit: int = NAMED_ITEMS) -> str:
  """The first few items, for a message."""
  named = ", ".join(str(item) for item in items[:limit])
  if len(items) > limit:
    named += " and %d more" % (len(items) - limit)
  return named


def report(logger: logging.Logger, message: str, strict: bool) -> None:
  """Warns of rows that are left out or lose their result.

  Args:
    logger: of the module that has read them.
    message: file, counts, reason, and the first few of them.
    strict: raise the message instead.

  Raises:
    UserError: strict.
  """
  if strict:
    raise UserError("%s. With --strict=True that is an error: mend these rows, "
                    "or leave out --strict." % message)
  logger.warning("%s", message)
