"""Starts a run script: logging, and errors that a person can act on."""
import logging
import sys
import warnings
from typing import Any, Callable

from absl import app
from absl import logging as absl_logging
import tensorflow.compat.v1 as tf

from multigpu import failures
from multigpu import flag_checks
from multigpu import flags as run_flags
from multigpu import interruption
from multigpu.errors import UserError


def run(main: Callable[[Any], None]) -> None:
  """Parses the flags and calls `main`.

  A `UserError` ends the program with its message and status 1, without a
  traceback: it is about the input, not about the program. SIGTERM ends it with
  status 143 and SIGINT with 130, see `multigpu.interruption`.
  """
  def guarded_main(argv):
    _set_up_logging()
    interruption.listen()
    try:
      flag_checks.check_leftovers(argv[1:])
      main(argv)
    except interruption.Interruption as stop:
      sys.stdout.flush()
      print("Stopped by {}. The same command goes on from the newest "
            "checkpoint.".format(stop.signal_name), file=sys.stderr)
      raise
    except UserError as error:
      _exit(error)
    except tf.errors.ResourceExhaustedError as error:
      message = failures.explain_memory(
          str(error), run_flags.flag_values())
      if message is None:
        raise
      _exit(message)

  _refuse_runtimes_without_estimator()
  # Not tf.app.run: it ignores unknown flags, and with them misspelt ones.
  app.run(guarded_main)


def _exit(message: Any) -> None:
  sys.stdout.flush()
  print("ERROR: {}".format(message), file=sys.stderr)
  sys.exit(1)


# Lines of TensorFlow that say nothing to the user: the deprecation notes are
# for authors, the others come once for every variable or fill a screen.
_NOISE = ("is deprecated and will be removed", "Reduce to /",
          "batch_all_reduce", "Using config: {", "Calling checkpoint listeners",
          "are not visible to TensorFlow",
          # On several hosts.
          "Updated config: {", "session creator with config", "all_hooks [",
          "TF_CONFIG environment variable", "Distribute Coordinator",
          "RunConfig with distribution", "standard TensorFlow server",
          "Collective all_reduce", "Collective batch_all_reduce",
          "`eval_fn` is not passed", "`eval_strategy` is not passed",
          "Check health not enabled")


def _set_up_logging() -> None:
  """Shows what our own modules and TensorFlow log at level INFO."""
  tf.logging.set_verbosity(tf.logging.INFO)
  absl_logging.set_verbosity(absl_logging.INFO)
  warnings.filterwarnings("ignore", module="tensorflow")
  tensorflow_logger = logging.getLogger("tensorflow")
  # It has a handler of its own: without this its lines would appear twice.
  tensorflow_logger.propagate = False
  tensorflow_logger.addFilter(lambda record: not any(
      noise in record.getMessage() for noise in _NOISE))


def _refuse_runtimes_without_estimator() -> None:
  version = tuple(int(part) for part in tf.__version__.split(".")[:2])
  if version >= (2, 16):
    sys.exit("ERROR: this is TensorFlow {}, which has no tf.estimator: install "
             "TensorFlow 2.15 (bash scripts/setup.sh tf2) or 1.15 (bash "
             "scripts/setup.sh tf1).".format(tf.__version__))
