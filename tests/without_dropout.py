"""Runs run_classifier_multigpu.py without the dropout of its head.

It is no part of the model's configuration, and every replica draws its own.
"""
import functools
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
  from tasks import classifier_head
  classifier_head.make_classifier_head = functools.partial(
      classifier_head.make_classifier_head, dropout_prob=0.0)
  runpy.run_path(str(ROOT / "run_classifier_multigpu.py"), run_name="__main__")
