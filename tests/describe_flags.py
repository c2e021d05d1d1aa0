"""Prints the flags of a run script as JSON (a program of its own: two run
scripts in one process would define flags twice)."""
import importlib
import inspect
import json
import sys

import tensorflow.compat.v1 as tf


def main():
  script = importlib.import_module(sys.argv[1])
  own = {}
  for module in (script.__name__, "multigpu.flags"):
    for flag in tf.flags.FLAGS.flags_by_module_dict().get(module, []):
      own[flag.name] = [flag.flag_type(), flag.default]
  signatures = {
      name: [p.name for p in inspect.signature(
          getattr(script, name)).parameters.values()
             if p.kind != p.KEYWORD_ONLY]
      for name in sys.argv[2:]}
  print(json.dumps({"flags": own, "signatures": signatures}))


if __name__ == "__main__":
  main()
