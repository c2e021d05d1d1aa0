"""scripts/launch_hosts.sh and the examples in deploy/; no TensorFlow."""
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

from conftest import ROOT
from multigpu import hosts

LAUNCHER = ROOT / "scripts" / "launch_hosts.sh"
# Prints what the run scripts would find.
SHOW = """
import os, sys
sys.path.insert(0, %r)
from multigpu import hosts
found = hosts.read(os.environ)
print(found.describe(), found.size, os.getcwd())
""" % str(ROOT)


def launch(*arguments, **options):
  return subprocess.run(
      ["bash", str(LAUNCHER)] + [str(argument) for argument in arguments],
      capture_output=True, text=True, timeout=60, **options)


def write_program(path, text):
  path.write_text(text)
  path.chmod(0o755)
  return path


def test_two_tasks_on_this_machine(tmp_path):
  done = launch("--port=4000", "localhost", "localhost", "--", sys.executable,
                "-c", SHOW, cwd=str(tmp_path))
  assert done.returncode == 0, done.stderr
  assert sorted(done.stdout.splitlines()) == [
      "[localhost:4001] worker 0 (localhost:4001) 2 %s" % tmp_path,
      "[localhost] chief (localhost:4000) 2 %s" % tmp_path]


def test_other_machines_are_reached_by_ssh(tmp_path):
  """A shell plays ssh: it gets one word more to read than the program."""
  ssh = write_program(tmp_path / "ssh", "\n".join([
      "#!/bin/sh", 'echo "ssh $1 $2"', 'shift 2', 'cd /', 'sh -c "$*"']))
  done = launch("--ssh=%s -v" % ssh, "--dir=%s" % tmp_path, "me@node1", "node2",
                "node2", "--", sys.executable, "-c", SHOW)
  assert done.returncode == 0, done.stderr
  assert sorted(done.stdout.splitlines()) == sorted(
      "[%s] %s" % line for name, task in [
          ("node1", "chief (node1:2222)"), ("node2", "worker 0 (node2:2222)"),
          ("node2:2223", "worker 1 (node2:2223)")] for line in [
              (name, "ssh -v %s" % (
                  "me@node1" if name == "node1" else "node2")),
              (name, "%s 3 %s" % (task, tmp_path))])


def test_this_machines_own_name_needs_no_ssh(tmp_path):
  name = socket.gethostname()
  done = launch("--ssh=false", name, "--", "echo", "a b")
  assert (done.returncode, done.stdout) == (0, "[%s] a b\n" % name)


FAILING = """
case $TF_CONFIG in
  *'"type": "worker"'*) exit 7 ;;
esac
sleep %s
exit 3
"""


def test_the_status_is_that_of_the_first_that_fails():
  done = launch("localhost", "localhost", "--", "bash", "-c", FAILING % 1)
  assert done.returncode == 7
  assert "localhost:2223 ended with status 7" in done.stderr


def wait_until(condition):
  deadline = time.monotonic() + 20
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.05)


def is_running(pid):
  return "\nState:\tZ" not in open("/proc/%d/status" % pid).read() if (
      os.path.exists("/proc/%d" % pid)) else False


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_commands_end_with_the_launcher(tmp_path, end):
  process = subprocess.Popen(
      ["bash", str(LAUNCHER), "localhost", "localhost", "--", "bash", "-c",
       "echo $$ > pid-${#TF_CONFIG}; exec sleep 300"], cwd=str(tmp_path))
  names = lambda: list(tmp_path.glob("pid-*"))
  wait_until(lambda: len(names()) == 2 and all(
      path.read_text() for path in names()))
  pids = [int(path.read_text()) for path in names()]
  getattr(process, end)()
  assert process.wait(timeout=20) == (143 if end == "terminate" else -9)
  wait_until(lambda: not any(is_running(pid) for pid in pids))


@pytest.mark.parametrize("arguments, message", [
    (["--"], "no hosts"), (["node1"], "no command"), (["node1", "--"],
                                                      "no command"),
    (["--gpus=2", "node1", "--", "true"], "unknown option '--gpus=2'"),
    (["--port=x", "node1", "--", "true"], "--port=x, wanted a number"),
    (["localhost", "node1", "--", "true"],
     "node1 cannot reach this machine as 'localhost'")])
def test_mistakes(arguments, message):
  done = launch(*arguments)
  assert done.returncode == 1
  assert "launch_hosts: " in done.stderr and message in done.stderr


def test_slurm(tmp_path):
  """Two small programs play Slurm's."""
  write_program(tmp_path / "scontrol", "\n".join([
      "#!/bin/sh", '[ "$*" = "show hostnames n[1-2]" ] || exit 1',
      "echo n1; echo n2"]))
  write_program(tmp_path / "srun", "\n".join([
      "#!/bin/bash", "shift 2",
      "SLURM_PROCID=0 \"$@\"; SLURM_PROCID=1 \"$@\""]))
  project = tmp_path / "project"
  python = project / ".venv" / "tf2" / "bin" / "python"
  python.parent.mkdir(parents=True)
  write_program(python, "#!/bin/sh\necho $TF_CONFIG\necho \"$@\" >&2\n")
  done = subprocess.run(
      ["bash", str(ROOT / "deploy" / "slurm.sbatch")], cwd=str(project),
      capture_output=True, text=True, check=True,
      env=dict(os.environ, SLURM_JOB_ID="123456", SLURM_JOB_NODELIST="n[1-2]",
               PATH="%s:%s" % (tmp_path, os.environ["PATH"])))
  found = [hosts.read({"TF_CONFIG": line}) for line in done.stdout.splitlines()]
  assert [one.describe() for one in found] == [
      "worker 0 (n1:23456)", "worker 1 (n2:23456)"]
  assert done.stderr.startswith("run_squad_multigpu.py --vocab_file=")


@pytest.mark.parametrize("name", ["slurm.sbatch", "tfjob.yaml"])
def test_flags_of_the_examples(name):
  """All are defined by the script or for all scripts."""
  text = "\n".join(
      (ROOT / path).read_text() for path in (
          "run_squad_multigpu.py", "multigpu/flags.py"))
  command = (ROOT / "deploy" / name).read_text().split(
      "run_squad_multigpu.py", 1)[1]
  flags = re.findall(r"--([a-z_0-9]+)=", command)
  assert len(flags) > 8
  for flag in flags:
    assert re.search(r'"%s", ' % flag, text), flag


def test_shellcheck_finds_nothing_in_the_examples():
  shellcheck = shutil.which("shellcheck", path=os.pathsep.join(
      [os.path.dirname(sys.executable), os.environ["PATH"]]))
  if shellcheck is None:
    pytest.skip("shellcheck is not on this machine")
  done = subprocess.run(
      [shellcheck, "-x", str(ROOT / "deploy" / "slurm.sbatch")],
      stdout=subprocess.PIPE, text=True)
  assert done.stdout == ""
