"""Random kills: nothing is lost, the final weights are those without them."""
import pytest

import interrupted_runs

# A launcher for each way to run: name -> function(folder, **flags).
LAUNCHERS = {"one host": interrupted_runs.on_this_host,
             "two hosts": interrupted_runs.on_two_hosts}


def soak(tmp_path, name, num_kills, seed, num_train_epochs):
  """Kills runs so often, and once more while they answer; returns the Soak."""
  interrupted_runs.write_task(tmp_path)
  launch = LAUNCHERS[name](tmp_path, num_train_epochs=num_train_epochs)
  reference = interrupted_runs.Soak(launch, tmp_path / "reference", 0)
  start_seconds, seconds = reference.finish()
  last_step = interrupted_runs.latest_step(reference.output_dir)
  runs = interrupted_runs.Soak(launch, tmp_path / "killed", seed)
  while num_killed(runs) < num_kills:
    runs.interrupt(start_seconds)
  runs.interrupt_answers(last_step, seconds=2)
  runs.finish()
  print("\n%s: %d steps, an uninterrupted run takes %.0f s; %s; steps: %s" % (
      name, last_step, seconds, dict(runs.counts), runs.steps))
  interrupted_runs.assert_same_results(runs.output_dir, reference.output_dir)
  return runs


def num_killed(runs):
  return sum(count for moment, count in runs.counts.items()
             if moment.startswith("kill -9"))


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_three_kills(tmp_path):
  runs = soak(tmp_path, "one host", 3, seed=2, num_train_epochs=2)
  # The same command after the end.
  runs.finish()
  assert "already holds step" in runs.output()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_thirty_kills(tmp_path, name):
  runs = soak(tmp_path, name, 30, seed=1, num_train_epochs=20)
  assert runs.counts["kill -9 while a file was written"] >= 3
  assert len(set(runs.steps)) > 10
