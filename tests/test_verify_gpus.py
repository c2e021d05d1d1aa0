"""verify_gpus.py: what is found wrong, what hangs, what is written."""
import json
import os
import sys
import time

import pytest
import tensorflow.compat.v1 as tf

import programs
from conftest import ROOT
from multigpu import devices
from multigpu import gpu_report
from multigpu import verdicts
from multigpu import verification
from multigpu import verification_jobs as jobs
from multigpu import watching
from multigpu.errors import UserError

tf.logging.set_verbosity(tf.logging.ERROR)

TRAINED = {"losses": [2.0, 1.5], "num_skipped": 0,
           "step_seconds": [9.0, 9.0, 9.0, 0.5, 0.5],
           "peak_memory": {"GPU:0": 2 ** 30, "GPU:1": 2 ** 31}}


def watch_program(tmp_path, text, step_timeout=60.0):
  """Watches a Python program of some lines."""
  program = "import json, os, subprocess, sys, time\nsys.path.insert(0, %r)\n" \
      "from multigpu.watching import report\n" % str(ROOT)
  return watching.watch([sys.executable, "-c", program + text],
                        str(tmp_path / "log"), step_timeout)


def test_a_program_that_hangs_in_a_step_is_killed_with_its_children(tmp_path):
  outcome = watch_program(tmp_path, """
report(phase="step 1", is_step=True)
child = subprocess.Popen(["sleep", "1000"])
open(%r, "w").write(str(child.pid))
report(phase="step 2", is_step=True)
print("a library says something")
time.sleep(1000)
""" % str(tmp_path / "pid"), step_timeout=2.0)
  assert (outcome.hung_in, outcome.status) == ("step 2", None)
  assert outcome.seconds < 60
  pid = (tmp_path / "pid").read_text()
  for _ in range(100):
    state = "Z"
    if os.path.exists("/proc/" + pid):
      state = open("/proc/%s/stat" % pid).read().rpartition(") ")[2][0]
    if state == "Z":
      break
    time.sleep(0.1)
  assert state == "Z"


def test_other_phases_may_take_longer_than_a_step(tmp_path):
  outcome = watch_program(tmp_path, """
report(phase="the building of the graph")
time.sleep(1.5)
report(result={"value": 3})
sys.stderr.write("to the log")
""", step_timeout=1.0)
  assert outcome.hung_in is None
  assert (outcome.status, outcome.found) == (0, {"result": {"value": 3}})
  assert (tmp_path / "log").read_text() == "to the log"


def test_a_program_that_dies(tmp_path):
  outcome = watch_program(
      tmp_path, "print('@event {\"resu', flush=True); os.abort()")
  assert (outcome.status, outcome.found, outcome.hung_in) == (-6, {}, None)


class Machine:
  """Plays the processes; `answers` has what differs from a good machine."""

  def __init__(self, num_gpus=2, **answers):
    self.num_gpus = num_gpus
    self.answers = answers
    self.jobs = []

  def watch(self, job, log):
    assert os.path.isdir(job.work_dir)
    self.jobs.append(job)
    good = {"result": {
        jobs.DEVICES: {"kind": "GPU"}, jobs.TRAINING: TRAINED,
        jobs.SPEED: TRAINED,
        jobs.PREDICTION: {"label_ids": list(range(job.num_rows)),
                          "losses": [1.0] * job.num_rows}}[job.kind]}
    key = os.path.basename(job.work_dir)
    answer = self.answers.get(key, good)
    if answer == "hangs":
      return watching.Outcome(None, {}, "step 1", 120.0)
    if isinstance(answer, int):
      return watching.Outcome(answer, {}, None, 1.0)
    return watching.Outcome(1 if "error" in answer else 0, answer, None, 1.0)

  def verify(self, tmp_path, method="check_all", *arguments):
    settings = verification.Settings(self.num_gpus, str(tmp_path / "out"))
    lines = []
    with verification.Verification(settings, self.watch,
                                   lines.append) as checks:
      results = getattr(checks, method)(*arguments)
    assert len(lines) == len(results)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["logs"]
    return {result.name: result for result in results}


@pytest.fixture(autouse=True)
def equal_weights(request, monkeypatch):
  """Played trainings write no checkpoints."""
  if "real_weights" not in request.fixturenames:
    monkeypatch.setattr(verdicts, "weights_distance", lambda *_: 0.0)


@pytest.fixture
def real_weights():
  """Leaves the comparison of checkpoints alone."""


def failing(results):
  return [name for name, result in results.items()
          if result.status in (verdicts.FAILED, verdicts.HUNG)]


def test_all_checks_pass(tmp_path):
  machine = Machine(4)
  results = machine.verify(tmp_path)
  assert verdicts.all_passed(list(results.values()))
  assert list(results) == [
      "training on 1 replica", "all-reduce auto", "all-reduce nccl",
      "all-reduce hierarchical_copy", "all-reduce reduce_to_one",
      "precision fp16", "precision bf16", "gradient accumulation",
      "prediction on 1 replica", "prediction on 4 replicas"]
  trainings = [job for job in machine.jobs if job.kind == jobs.TRAINING]
  assert {job.num_replicas * job.batch_per_gpu * job.accumulation_steps
          for job in trainings} == {16}


def test_a_check_that_hangs_does_not_end_the_others(tmp_path):
  results = Machine(all_reduce_nccl="hangs").verify(tmp_path)
  assert failing(results) == ["all-reduce nccl"]
  details = results["all-reduce nccl"].details
  for word in ("no progress in step 1", "--all_reduce=hierarchical_copy",
               "NCCL_P2P_DISABLE=1", "NCCL_DEBUG=INFO", "--step_timeout",
               os.path.join("logs", "all_reduce_nccl.log")):
    assert word in details
  assert not verdicts.all_passed(list(results.values()))


@pytest.mark.parametrize("answer, words", [
    (-11, "status -11"),
    ({"error": "ResourceExhaustedError: OOM when allocating"},
     "pass a smaller --batch_per_gpu"),
    ({"result": dict(TRAINED, losses=[2.0, 1.501])}, "differ by 2.0e-03"),
    ({"result": dict(TRAINED, losses=[2.0])}, "trains something else"),
    ({"result": dict(TRAINED, losses=[2.0, float("nan")])},
     "trains something else"),
    # What is not a choice of hardware must be there.
    ({"unavailable": "no such thing"}, "no such thing"),
])
def test_what_fails(tmp_path, answer, words):
  results = Machine(gradient_accumulation=answer).verify(tmp_path)
  assert failing(results) == ["gradient accumulation"]
  assert words in results["gradient accumulation"].details


def test_other_weights_fail(tmp_path, monkeypatch):
  monkeypatch.setattr(verdicts, "weights_distance", lambda *_: 0.1)
  results = Machine().verify(tmp_path)
  # Not half precision, where they may differ.
  assert failing(results) == [
      "all-reduce auto", "all-reduce nccl", "all-reduce hierarchical_copy",
      "all-reduce reduce_to_one", "gradient accumulation"]


def test_what_a_machine_does_not_have_is_not_a_failure(tmp_path):
  results = Machine(
      all_reduce_nccl={"unavailable": "--all_reduce=nccl needs GPUs"},
      precision_bf16={"unavailable": "needs AVX-512"},
      precision_fp16={"result": dict(TRAINED, losses=[2.01, 1.51])},
  ).verify(tmp_path)
  assert failing(results) == []
  assert results["all-reduce nccl"].status == verdicts.UNAVAILABLE
  assert results["precision bf16"].details == "needs AVX-512"
  assert results["precision fp16"].status == verdicts.PASSED


def test_half_precision_that_does_not_train_fails(tmp_path):
  results = Machine(
      precision_fp16={"result": dict(TRAINED, losses=[2.0, 2.0])},
  ).verify(tmp_path)
  assert failing(results) == ["precision fp16"]


def test_without_the_run_on_1_replica_nothing_is_compared(tmp_path):
  results = Machine(training_on_1_replica=1).verify(tmp_path)
  assert set(failing(results)) == {
      name for name in results if "prediction" not in name}
  assert "training on 1 replica failed" in results["all-reduce auto"].details


def test_rows_in_another_order_fail(tmp_path):
  answer = {"label_ids": [1, 0] + list(range(2, 17)), "losses": [1.0] * 17}
  results = Machine(
      prediction_on_2_replicas={"result": answer}).verify(tmp_path)
  assert failing(results) == ["prediction on 2 replicas"]


def test_one_gpu_has_nothing_to_reduce(tmp_path):
  results = Machine(1).verify(tmp_path)
  assert failing(results) == []
  assert results["all-reduce auto"].status == verdicts.UNAVAILABLE
  assert [name for name in results if "prediction" in name] == [
      "prediction on 1 replica"]


def test_folders_of_the_user_stay(tmp_path):
  mine = tmp_path / "out" / "work" / "mine.txt"
  mine.parent.mkdir(parents=True)
  mine.write_text("")
  settings = verification.Settings(2, str(tmp_path / "out"))
  with verification.Verification(settings, Machine().watch) as checks:
    checks.find_devices()
  assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
      "logs", "work"]
  assert mine.exists()


def test_a_slow_start_has_other_reasons():
  outcome = watching.Outcome(None, {}, "the building of the graph", 600.0)
  text = verdicts.describe_failure(outcome, "x.log")
  assert "compiles all kernels" in text
  assert "NCCL" not in text


def test_devices_that_are_not_there(tmp_path):
  machine = Machine(devices={"unavailable": "--num_gpus=2, but 1 GPU"})
  with pytest.raises(UserError, match="--num_gpus=2, but 1 GPU"):
    machine.verify(tmp_path, "find_devices")


@pytest.mark.parametrize("num_gpus, counts", [
    (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]),
    (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_replica_counts(num_gpus, counts):
  assert verification.replica_counts(num_gpus) == counts


def measured(tmp_path, num_gpus=4, **answers):
  machine = Machine(num_gpus, **answers)
  settings = verification.Settings(num_gpus, "", batch_per_gpu=8)
  return list(machine.verify(tmp_path, "measure_speed", settings).values())


def test_speed_and_efficiency(tmp_path):
  slow = dict(TRAINED, step_seconds=[0.0, 0.0, 0.0, 1.0])
  speed = measured(tmp_path, speed_of_4_replicas={"result": slow},
                   speed_of_2_replicas="hangs")
  table = gpu_report.format_table(speed).splitlines()
  assert table[1].split() == ["1", "16.0", "100%", "0.500", "2.00", "GiB"]
  assert table[2] == "speed of 2 replicas: HANGS"
  assert table[3].split() == ["4", "32.0", "50%", "1.000", "2.00", "GiB"]


def report_of(tmp_path):
  checks = list(Machine(all_reduce_nccl="hangs").verify(tmp_path).values())
  return gpu_report.Report(
      {"num_gpus": 4}, gpu_report.describe_machine(), checks,
      measured(tmp_path))


def test_the_report_is_written_whole(tmp_path):
  pytest.importorskip("matplotlib")
  written = gpu_report.write(report_of(tmp_path), str(tmp_path))
  assert written == [str(tmp_path / "report.json"),
                     str(tmp_path / "report.png")]
  found = json.loads((tmp_path / "report.json").read_text())
  assert not found["passed"]
  assert [check["status"] for check in found["checks"]].count("HANGS") == 1
  assert found["speed"][2]["figures"]["efficiency"] == 1.0
  assert found["environment"]["num_cpus"] == os.cpu_count()
  picture = (tmp_path / "report.png").read_bytes()
  assert picture.startswith(b"\x89PNG") and b"IEND" in picture[-12:]
  assert sorted(path.name for path in tmp_path.iterdir()) == [
      "out", "report.json", "report.png"]


def test_without_matplotlib_there_is_a_message(tmp_path, monkeypatch):
  for name in [name for name in sys.modules if name.startswith("matplotlib")]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  (tmp_path / "report.png").write_bytes(b"of an earlier run")
  written = gpu_report.write(report_of(tmp_path), str(tmp_path))
  assert "matplotlib is not installed" in written[1]
  assert not (tmp_path / "report.png").exists()
  assert (tmp_path / "report.json").exists()


LOST_GRADIENTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import optimization_multigpu
from multigpu import verification_jobs
from tasks.classifier_head import make_classifier_head
job = verification_jobs.Job(**json.loads(sys.argv[2]))
if job.num_replicas > 1:
  optimization_multigpu.AdamWeightDecayOptimizer._average = (
      lambda self, grads: grads)
verification_jobs.run(job, lambda num_labels: make_classifier_head(
    num_labels, dropout_prob=0.0))
"""


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_replicas_that_do_not_talk_are_found_out(tmp_path, real_weights):
  def watch(job, log):
    return watching.watch(
        [sys.executable, "-c", LOST_GRADIENTS, str(ROOT),
         json.dumps(job._asdict())], log, 120.0)

  settings = verification.Settings(2, str(tmp_path), device_type="cpu")
  with verification.Verification(settings, watch) as checks:
    alone = checks._check("alone", checks._training(1), verdicts.judge_alone)
    both = checks._check_all_reduce("auto")
  assert alone.status == verdicts.PASSED, alone
  assert both.status == verdicts.FAILED, both
  assert "trains something else than 1 replica" in both.details
  assert both.figures["weights_distance"] > 5 * verdicts.WEIGHTS_TOLERANCE


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("num_gpus", [1, 2])
def test_the_command_on_the_cpu(tmp_path, num_gpus):
  done = programs.run(
      "verify_gpus.py", tmp_path, timeout=1200, num_gpus=num_gpus,
      speed_steps=2, batch_per_gpu=2, seq_length=16)
  assert done.status == 0, done.output
  assert "all available checks passed" in done.output
  report = json.loads(
      (tmp_path / "output" / "verify_gpus" / "report.json").read_text())
  assert report["passed"]
  assert report["environment"]["tensorflow"] == tf.__version__
  statuses = {check["name"]: check["status"] for check in report["checks"]}
  statuses.pop("precision bf16")  # depends on the processor
  unavailable = {name for name, status in statuses.items()
                 if status == verdicts.UNAVAILABLE}
  assert unavailable == (
      {"all-reduce nccl"} if num_gpus == 2 else
      {"all-reduce " + name for name in devices.ALL_REDUCE})
  assert {statuses[name] for name in set(statuses) - unavailable} == {
      verdicts.PASSED}
  assert [row["figures"]["num_replicas"] for row in report["speed"]] == [
      1, 2][:num_gpus]


@pytest.mark.slow
@pytest.mark.parametrize("flags, message", [
    (dict(num_gpus=3, device_type="gpu"),
     "ERROR: --num_gpus=3, but this machine shows 0 GPUs"),
    (dict(output_dir="gs://bucket/x"), "ERROR: --output_dir=gs://bucket/x"),
])
def test_mistakes(tmp_path, flags, message):
  done = programs.run("verify_gpus.py", tmp_path, **flags)
  assert done.status == 1
  assert message in done.output
  assert "Traceback" not in done.output
