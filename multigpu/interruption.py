"""Ends a run in good order when it is asked to: SIGTERM, SIGINT (Ctrl-C).

Schedulers send SIGTERM before they take a machine away. While weights are
trained the signal waits until the step under way is done and saved; at all
other times it raises `Interruption` at once: what is half done then has a
temporary name and is removed on the way out. No TensorFlow.
"""
import logging
import os
import signal
from typing import Any, Optional

_LOG = logging.getLogger(__name__)

_EXIT_CODE = 128  # plus the number of the signal, as shells report it
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption(SystemExit):
  """Ends the program with the status 143 (SIGTERM) or 130 (SIGINT).

  A SystemExit, so that nobody takes it for an error: no traceback.
  """

  def __init__(self, number: int):
    super().__init__(_EXIT_CODE + number)
    self.signal_name = signal.Signals(number).name


class _State:
  """What has been asked for; one for the process, as its signals are."""

  def __init__(self) -> None:
    self.asked: Optional[int] = None
    self.is_training = False


_STATE = _State()


def listen() -> None:
  """Handles the signals from now on; for the main thread."""
  for number in _SIGNALS:
    signal.signal(number, _handle)


def _handle(number: int, frame: Any) -> None:
  del frame
  first, _STATE.asked = _STATE.asked, number
  if not _STATE.is_training:
    raise Interruption(number)
  if first is None:
    # Not through logging: the signal may come while its lock is held.
    os.write(2, b"\nStopping after this step; its weights are saved first. "
                b"Ctrl-C again ends at once.\n")
  elif number == signal.SIGINT:
    # A person who does not want to wait. What is on the disk is whole.
    os._exit(_EXIT_CODE + number)


def wait_for_steps(is_training: bool) -> None:
  """From now on signals wait for the end of a step (or do no longer)."""
  _STATE.is_training = is_training


def is_asked() -> bool:
  """Whether a signal has come that was not acted on."""
  return _STATE.asked is not None


def raise_if_asked() -> None:
  """Raises `Interruption` if a signal has come that was not acted on."""
  if _STATE.asked is not None:
    raise Interruption(_STATE.asked)
