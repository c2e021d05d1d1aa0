"""Reduces a checkpoint of a training to its weights: a third of the size.

  python scripts/strip_checkpoint.py IN OUT
  python scripts/strip_checkpoint.py output/squad squad_model/model.ckpt

IN is a checkpoint (path without ".index") or a folder: its newest checkpoint.
OUT is the path of the new one. The moments of the optimizer and the loss scale
are left out. Pass OUT as --init_checkpoint here or to Google's scripts; or, as
the only checkpoint of an --output_dir, predict with it. A training cannot go on
from it, but start from it.
"""
import argparse
import os
import sys
from typing import List, Optional

import tensorflow.compat.v1 as tf

# A script's own folder is on the path, the project's is not.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from multigpu import checkpoints
from multigpu import weights_only
from multigpu.errors import UserError


def strip(source: str, target: str) -> str:
  """Writes the weights of a checkpoint; returns a report of one line.

  Raises:
    UserError: there is nothing to read, or the target exists.
  """
  source = weights_only.find_source(source)
  weights_only.check_target(source, target)
  folder = os.path.dirname(target) or "."
  tf.io.gfile.makedirs(folder)
  left_out = weights_only.copy_weights(source, target)
  # Where a training keeps its checkpoints, its newest one stays the newest.
  if tf.train.get_checkpoint_state(folder) is None:
    checkpoints.write_state(folder, [os.path.basename(target)])
  sizes = [weights_only.size_of(path) / 1e6 for path in (source, target)]
  return ("{}: {:.1f} MB -> {}: {:.1f} MB; {} variables left out, the others "
          "compared and equal".format(
              source, sizes[0], target, sizes[1], len(left_out)))


def main(arguments: Optional[List[str]] = None) -> int:
  """Runs the program; returns the exit status."""
  parser = argparse.ArgumentParser(
      description="Reduces a checkpoint of a training to its weights.")
  parser.add_argument("source", metavar="IN", help="checkpoint without the "
                      "ending .index, or a folder: its newest checkpoint")
  parser.add_argument("target", metavar="OUT",
                      help="path of the new checkpoint")
  options = parser.parse_args(arguments)
  tf.logging.set_verbosity(tf.logging.ERROR)
  try:
    print(strip(options.source, options.target))
  except UserError as error:
    print("error: %s" % error, file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
