"""A few mutated inputs a format; tests/fuzz_inputs.py alone tries more."""
import logging

import fuzz_inputs
import fuzz_targets
import pytest

# Inputs take about 1 ms, those that become pre-training records 20 ms.
COUNTS = dict(dict.fromkeys(fuzz_targets.TARGETS, 300), text=60)
SEED = 5


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_inputs_are_read_or_refused(tmp_path, caplog, name):
  caplog.set_level(logging.CRITICAL)
  outcomes, failures = fuzz_inputs.fuzz(
      name, str(tmp_path), SEED, count=COUNTS[name])
  assert not failures, "%s: --seed=%d --first=%d\n%s" % (
      name, SEED, failures[0].number, failures[0].details)
  # Neither are all inputs broken beyond use, nor is nothing ever refused.
  assert min(outcomes["read"], outcomes["refused"]) >= COUNTS[name] // 10


def test_other_exceptions_are_failures_that_can_be_repeated(tmp_path,
                                                            monkeypatch):
  seen = []

  def fail_sometimes(folder, content, rng):
    seen.append(content)
    if rng.random() < 0.5:
      raise KeyError("2")

  monkeypatch.setitem(fuzz_targets.TARGETS, "json", fail_sometimes)
  outcomes, failures = fuzz_inputs.fuzz("json", str(tmp_path), 1, count=20)
  assert outcomes["failed"] == len(failures) > 0
  assert "KeyError: '2'" in failures[0].details
  again = fuzz_inputs.fuzz("json", str(tmp_path), 1, failures[0].number, 1)[1]
  assert again[0].content == failures[0].content
  assert len(set(seen)) > 10
