"""Folders that are read or written: is there one, and can it be used?

No TensorFlow. Folders of other file systems (gs://) are not looked at: asking
takes long, and rights are not known in advance.
"""
import logging
import os
from typing import Mapping, Optional

from multigpu import file_kinds
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

# What run_squad writes and someone may want to read again.
_RESULTS = ("predictions.json", "nbest_predictions.json", "null_odds.json",
            "eval_results.json")


def check_output_dir(output_dir: str,
                     inputs: Mapping[str, Optional[str]]) -> None:
  """Checks that results can be written to a folder, which need not exist.

  Args:
    output_dir: the folder.
    inputs: {flag: path} of what is read.

  Raises:
    UserError: it is a file, cannot be written, or an input would be lost.
  """
  where = "--output_dir={}".format(output_dir)
  if not output_dir:
    raise UserError("--output_dir is empty: pass a folder for the results.")
  if "://" in output_dir:
    return
  existing = output_dir.rstrip("/") or "/"
  while not os.path.lexists(existing):
    existing = os.path.dirname(existing) or "."
  if not os.path.isdir(existing):
    raise UserError("{}: {} is {}, wanted a folder: pass another name.".format(
        where, existing, "a link to nothing" if os.path.islink(existing)
        else "a file"))
  if not os.access(existing, os.W_OK | os.X_OK):
    raise UserError("{} cannot be written: no right to write to {}. Pass "
                    "another folder.".format(where, existing))
  for flag, path in inputs.items():
    if path and _is_result(path, output_dir):
      raise UserError("--{}={} is a result of --output_dir={} and would be "
                      "overwritten: pass another folder.".format(
                          flag, path, output_dir))
    if path and os.path.realpath(path) == os.path.realpath(output_dir):
      _LOG.warning("--output_dir is --%s too: checkpoints and results go "
                   "between the data.", flag)


def _is_result(path: str, output_dir: str) -> bool:
  return (os.path.basename(path) in _RESULTS and os.path.realpath(
      os.path.dirname(path) or ".") == os.path.realpath(output_dir))


def check_folder(path: str, flag: str, wanted: str) -> None:
  """Raises UserError if there is no such folder; arguments: file_kinds."""
  if not path:
    raise UserError("--{} is empty: pass {}.".format(flag, wanted))
  if "://" in path or os.path.isdir(path):
    return
  if os.path.exists(path):
    raise UserError("--{}={} is a file, wanted {}: pass {}.".format(
        flag, path, wanted, os.path.dirname(path) or "."))
  raise UserError("--{}={}: there is no such folder, wanted {}{}".format(
      flag, path, wanted, file_kinds.suggest(path.rstrip("/"))))
