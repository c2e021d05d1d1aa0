"""The checks of `verify_gpus.py`: what N replicas must do as one does.

Each check is a process of its own (`multigpu.verification_jobs`), watched by
this one: what crashes or hangs in one check does not end the others.
"""
import functools
import os
import re
import shutil
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from multigpu import devices
from multigpu import session_options
from multigpu import verdicts
from multigpu import verification_jobs as jobs
from multigpu import watching
from multigpu.errors import UserError
from multigpu.verdicts import Result, Verdict

# Rows of one replica in an update of the checks; divides by the two
# micro-batches of accumulation.
ROWS_PER_REPLICA = 4
# Number of different rows whose training is timed.
SPEED_ROWS = 64


class Settings(NamedTuple):
  """What the user asked for."""
  num_gpus: int
  output_dir: str
  device_type: str = "auto"
  # These two: of all but the checks that try them.
  all_reduce: str = "auto"
  precision: str = session_options.FP32
  model: str = "small"
  batch_per_gpu: int = 8
  seq_length: int = 128
  speed_steps: int = 20
  step_timeout: float = 120.0


Judge = Callable[[Dict[str, Any]], Verdict]
Watch = Callable[[jobs.Job, str], watching.Outcome]


class Verification:
  """All checks, one after the other; to be used in a `with`."""

  def __init__(self, settings: Settings, watch: Watch,
               say: Callable[[str], None] = print):
    """Args:

      settings: what to check.
      watch: runs a job to its end or kills it; takes the path of its log.
      say: takes a line about each check.
    """
    self._settings = settings
    self._watch = watch
    self._say = say
    self._work_dir = ""
    self._logs = os.path.join(settings.output_dir, "logs")
    # {kind of job: what it found on 1 replica}
    self._references: Dict[str, Dict[str, Any]] = {}

  def __enter__(self) -> "Verification":
    try:
      os.makedirs(self._logs, exist_ok=True)
      # A name that nobody has: it is removed with all that is in it.
      self._work_dir = tempfile.mkdtemp(
          prefix="work-", dir=self._settings.output_dir)
    except OSError as error:
      raise UserError(
          "--output_dir={}: cannot make a folder there ({}): pass a folder "
          "that you may write to.".format(
              self._settings.output_dir, error.strerror)) from error
    return self

  def __exit__(self, *_: Any) -> None:
    shutil.rmtree(self._work_dir, ignore_errors=True)

  def find_devices(self) -> Dict[str, Any]:
    """What the processes run on.

    Raises:
      UserError: they do not get what the settings ask for.
    """
    outcome, log, _ = self._run("devices", self._job(
        jobs.DEVICES, precision=self._settings.precision))
    if watching.RESULT in outcome.found:
      return outcome.found[watching.RESULT]
    raise UserError(outcome.found.get(watching.UNAVAILABLE) or
                    "The devices cannot be used: {}".format(
                        verdicts.describe_failure(outcome, log)))

  def check_all(self) -> List[Result]:
    """All checks; says a line for each."""
    num = self._settings.num_gpus
    training = self._training(num)
    results = [self._check("training on 1 replica", self._training(1),
                           verdicts.judge_alone)]
    for all_reduce in devices.ALL_REDUCE:
      results.append(self._check_all_reduce(all_reduce))
    for precision in session_options.PRECISIONS:
      if precision != session_options.FP32:
        results.append(self._check(
            "precision " + precision, training._replace(precision=precision),
            self._against(jobs.TRAINING, verdicts.compare_losses),
            may_lack=True))
    results.append(self._check(
        "gradient accumulation", training._replace(
            accumulation_steps=2, batch_per_gpu=ROWS_PER_REPLICA // 2),
        self._against(jobs.TRAINING, verdicts.compare_training)))
    return results + self._check_prediction()

  def _check_all_reduce(self, all_reduce: str) -> Result:
    name = "all-reduce " + all_reduce
    num = self._settings.num_gpus
    if num == 1:
      return self._note(Result(
          name, verdicts.UNAVAILABLE,
          "one replica has nothing to reduce: pass --num_gpus=2 or more."))
    return self._check(
        name, self._training(num)._replace(all_reduce=all_reduce),
        self._against(jobs.TRAINING, verdicts.compare_training), may_lack=True)

  def _check_prediction(self) -> List[Result]:
    num = self._settings.num_gpus
    # One row more than whole rounds: the last one is incomplete.
    num_rows = 2 * num * ROWS_PER_REPLICA + 1
    judge = self._against(
        jobs.PREDICTION, lambda found, reference: verdicts.compare_prediction(
            found, reference, num_rows))
    return [self._check(
        "prediction on " + _replicas(count), self._job(
            jobs.PREDICTION, num_rows=num_rows, num_replicas=count,
            batch_per_gpu=ROWS_PER_REPLICA), judge)
            for count in sorted({1, num})]

  def measure_speed(self, settings: Settings) -> List[Result]:
    """Examples per second of 1, 2, 4, ... replicas; says a line for each.

    Args:
      settings: with the model and the batch, which may depend on the devices
        that were found.
    """
    results = []
    for count in replica_counts(settings.num_gpus):
      job = self._job(
          jobs.SPEED, num_replicas=count, precision=settings.precision,
          model=settings.model, batch_per_gpu=settings.batch_per_gpu,
          seq_length=settings.seq_length, num_rows=SPEED_ROWS,
          num_steps=verdicts.WARM_UP_STEPS + settings.speed_steps)
      results.append(self._check(
          "speed of " + _replicas(count), job, functools.partial(
              verdicts.measure, num_replicas=count,
              batch_per_gpu=settings.batch_per_gpu)))
    return verdicts.with_efficiency(results)

  def _job(self, kind: str, **fields: Any) -> jobs.Job:
    settings = self._settings
    fields.setdefault("num_replicas", settings.num_gpus)
    return jobs.Job(kind=kind, work_dir="", all_reduce=settings.all_reduce,
                    device_type=settings.device_type, **fields)

  def _training(self, num_replicas: int) -> jobs.Job:
    """The same global batch for any number of replicas."""
    num_rows = self._settings.num_gpus * ROWS_PER_REPLICA
    return self._job(jobs.TRAINING, num_replicas=num_replicas,
                     num_rows=num_rows, batch_per_gpu=num_rows // num_replicas)

  def _against(self, kind: str, compare: Callable[..., Verdict]) -> Judge:
    """Compares with what the first job of the kind found on 1 replica."""
    def judge(found: Dict[str, Any]) -> Verdict:
      reference = self._references.get(kind)
      if reference is None:
        return Verdict("nothing to compare with",
                       "{} on 1 replica failed".format(kind))
      return compare(found, reference)
    return judge

  def _run(self, name: str,
           job: jobs.Job) -> Tuple[watching.Outcome, str, str]:
    """Returns what became of a job, its log and its folder."""
    slug = re.sub(r"\W+", "_", name)
    work_dir = os.path.join(self._work_dir, slug)
    os.makedirs(work_dir)
    log = os.path.join(self._logs, slug + ".log")
    return self._watch(job._replace(work_dir=work_dir), log), log, work_dir

  def _check(self, name: str, job: jobs.Job, judge: Judge,
             may_lack: bool = False) -> Result:
    """Runs a job and judges what it found.

    Args:
      name: of the check.
      job: what to run.
      judge: what is right.
      may_lack: not every machine has what is tried.
    """
    outcome, log, work_dir = self._run(name, job)
    found = outcome.found
    verdict = Verdict(None, "")
    if may_lack and watching.UNAVAILABLE in found:
      status, details = verdicts.UNAVAILABLE, found[watching.UNAVAILABLE]
    elif outcome.hung_in or outcome.status or watching.RESULT not in found:
      status = verdicts.HUNG if outcome.hung_in else verdicts.FAILED
      details = verdicts.describe_failure(outcome, log)
    else:
      result = dict(found[watching.RESULT], work_dir=work_dir)
      if job.num_replicas == 1:
        self._references.setdefault(job.kind, result)
      verdict = judge(result)
      status, details = verdicts.PASSED, verdict.details
      if verdict.problem:
        status = verdicts.FAILED
        details = "{}: {}. Log: {}".format(verdict.problem, details, log)
    if job.kind == jobs.SPEED:  # gigabytes, and nothing to compare
      shutil.rmtree(work_dir, ignore_errors=True)
    return self._note(
        Result(name, status, details, outcome.seconds, verdict.figures))

  def _note(self, result: Result) -> Result:
    self._say("{:<18}  {:<28}  {}".format(
        result.status, result.name, result.details))
    return result


def replica_counts(num_gpus: int) -> List[int]:
  """1, 2, 4, ... and the number itself."""
  counts = [1]
  while counts[-1] * 2 < num_gpus:
    counts.append(counts[-1] * 2)
  return counts + ([num_gpus] if num_gpus > 1 else [])


def _replicas(count: int) -> str:
  return "{} replica{}".format(count, "" if count == 1 else "s")
