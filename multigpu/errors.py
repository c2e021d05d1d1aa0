"""The one error that is meant for the person who started the program.

Run scripts catch it, print its message without a traceback and exit with
status 1. A message names the flag or file, the value seen, the value wanted
and the remedy.
"""


class UserError(ValueError):
  """A mistake in flags, files or data that the user can mend."""
