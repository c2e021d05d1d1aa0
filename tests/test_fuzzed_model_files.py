"""Broken model files end in success or in the project's own error.

Seeded, so that a failure comes again.
"""
import json
import random

import pytest

import mistakes_world as world
import modeling
from multigpu import initial_checkpoint
from multigpu import config_checks
from multigpu import vocabulary
from multigpu.errors import UserError

NUM_INPUTS = 10000
CONFIG = json.dumps(world.CONFIG).encode("ascii")
VOCAB = "".join(entry + "\n" for entry in world.VOCAB).encode("ascii")
# What files of users have in the wrong places.
PIECES = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r", b"\t", b" ", b"{", b"}",
    b"[", b"]", b"\"", b",", b":", b"null", b"true", b"-1", b"1e999", b"NaN",
    b"9" * 400, b"\xe2\x80\xa8", b"\xed\xa0\x80", b"[CLS]",
    "\u0130".encode("utf-8"), b"\\ud800", b"\"hidden_size\": [],"]


def mutate(generator, content):
  """Cuts, inserts, doubles or overwrites at one to four places."""
  for _ in range(generator.randint(1, 4)):
    place = generator.randint(0, len(content))
    end = min(len(content), place + generator.randint(0, 40))
    content = content[:place] + generator.choice([
        b"", generator.choice(PIECES), content[place:end] * 2,
        bytes([generator.randint(0, 255)])]) + content[
            generator.choice([place, end]):]
  return content


def run(check, content, seed, num_inputs=NUM_INPUTS):
  """Returns how many inputs passed and how many were refused."""
  generator = random.Random(seed)
  counts = [0, 0]
  for _ in range(num_inputs):
    broken = mutate(generator, content)
    try:
      check(broken)
      counts[0] += 1
    except UserError as error:
      assert str(error)
      counts[1] += 1
  print("seed %d: %d inputs passed, %d were refused" % (
      seed, counts[0], counts[1]))
  # Else the mutations are too weak or too strong to show anything.
  assert min(counts) > num_inputs / 100
  return counts


def test_configurations():
  def check(content):
    settings = config_checks.parse(content, "c")
    modeling.BertConfig.from_dict(settings)

  run(check, CONFIG, 1)


def test_vocabularies():
  def check(content):
    for case in (True, False):
      vocab = vocabulary.check(content, "v", vocabulary.Case(case, True))
    vocabulary.check_size(vocab, len(world.VOCAB), "v")
    vocabulary.check_no_blank_end(vocab, "v")

  run(check, VOCAB, 2)


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_checkpoints(tmp_path, suffix):
  """Fewer inputs: each is opened by TensorFlow itself."""
  world.build(tmp_path)
  config = modeling.BertConfig.from_dict(world.CONFIG)
  path = tmp_path / "model" / "bert_model.ckpt"
  part = path.parent / (path.name + suffix)

  def check(content):
    part.write_bytes(content)
    initial_checkpoint.check_init_checkpoint(str(path), config)

  run(check, part.read_bytes(), 3, 300)
