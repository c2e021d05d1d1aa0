"""Feeds mutated input files to the readers: success or UserError, no other way.

    python tests/fuzz_inputs.py --seed=1 --count=10000
    python tests/fuzz_inputs.py --formats=json,tsv --count=1000000 --seconds=600

Valid samples are mutated (bits, bytes, cuts, inserted tokens, copied parts;
JSON in its structure, too), read, and, where they can be read, taken through
the work that depends on them: features, answers, scores, labels, records. Each
input has a seed of its own; --seed=S --first=N --count=1 makes it again.
"""
import argparse
import collections
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback

if __name__ == "__main__":
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import fuzz_mutations as mutations
import fuzz_targets as targets
from multigpu.errors import UserError

MAX_SHOWN = 20


class Failure:
  """An input that ended in another exception than UserError."""

  def __init__(self, name, number, content, details):
    self.name = name
    self.number = number
    self.content = content
    self.details = details


def make_input(name, seed, number):
  """The input `number` of a format: (bytes, generator for further choices)."""
  rng = random.Random("%s %d %d" % (name, seed, number))
  sample = rng.choice(targets.SAMPLES[name]())
  return mutations.mutate(name, sample, rng), rng


def try_input(name, folder, content, rng):
  """Reads one input; returns "read", "refused" or the traceback."""
  try:
    targets.TARGETS[name](folder, content, rng)
  except UserError as error:
    if 0 < len(str(error)) < 5000:
      return "refused", ""
    return "failed", "a message of %d characters" % len(str(error))
  except Exception:  # noqa: BLE001 (that is what is looked for)
    return "failed", traceback.format_exc()
  return "read", ""


def fuzz(name, folder, seed, first=0, count=100, seconds=None):
  """Tries inputs; returns ({outcome: number}, failures)."""
  outcomes, failures = collections.Counter(), []
  end = time.time() + seconds if seconds else None
  for number in range(first, first + count):
    if end and time.time() > end:
      break
    content, rng = make_input(name, seed, number)
    outcome, details = try_input(name, folder, content, rng)
    outcomes[outcome] += 1
    if outcome == "failed":
      failures.append(Failure(name, number, content, details))
  return outcomes, failures


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--formats", default=",".join(targets.TARGETS))
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--count", type=int, default=1000, help="for each format")
  parser.add_argument("--seconds", type=float, help="for each format at most")
  parser.add_argument("--keep", help="folder for the inputs that fail")
  args = parser.parse_args()
  logging.disable(logging.CRITICAL)
  num_failed = 0
  for name in args.formats.split(","):
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
      outcomes, failures = fuzz(name, folder, args.seed, args.first, args.count,
                                args.seconds)
    print("%-7s seed %d, inputs %d to %d: read %d, refused %d, failed %d "
          "(%.0f s)" % (
              name, args.seed, args.first,
              args.first + sum(outcomes.values()) - 1, outcomes["read"],
              outcomes["refused"], outcomes["failed"], time.time() - start),
          flush=True)
    num_failed += len(failures)
    for failure in failures[:MAX_SHOWN]:
      print("--- %s, --seed=%d --first=%d --count=1\n%s" % (
          name, args.seed, failure.number, failure.details))
      if args.keep:
        path = os.path.join(args.keep, "%s-%d" % (name, failure.number))
        with open(path, "wb") as writer:
          writer.write(failure.content)
  print(json.dumps({"failed": num_failed}))
  return 1 if num_failed else 0


if __name__ == "__main__":
  sys.exit(main())
